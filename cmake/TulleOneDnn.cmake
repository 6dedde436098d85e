# oneDNN: a 3.x with the oneTBB runtime under TULLE_ONEDNN_ROOT (./dev setup puts the PyPI package there), else the
# system's. The target tulle_onednn carries it.
set(onednn_hints ${TULLE_ONEDNN_ROOT})
find_path(ONEDNN_INCLUDE dnnl.hpp HINTS ${onednn_hints} PATH_SUFFIXES include)
find_library(ONEDNN_LIBRARY NAMES dnnl HINTS ${onednn_hints} PATH_SUFFIXES lib)
if(NOT ONEDNN_INCLUDE OR NOT ONEDNN_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: run ./dev setup, install libdnnl-dev, or set TULLE_ONEDNN_ROOT")
endif()
message(STATUS "oneDNN: ${ONEDNN_LIBRARY}")
add_library(tulle_onednn INTERFACE IMPORTED GLOBAL)
target_include_directories(tulle_onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE})
target_link_libraries(tulle_onednn INTERFACE ${ONEDNN_LIBRARY})
# PyPI's oneDNN needs two libraries of its compiler's runtime and carries no search path: whoever links it names them.
cmake_path(GET ONEDNN_LIBRARY PARENT_PATH onednn_folder)
foreach(runtime libimf.so libintlc.so.5)
  if(EXISTS ${onednn_folder}/${runtime})
    target_link_libraries(tulle_onednn INTERFACE -Wl,--push-state,--no-as-needed ${onednn_folder}/${runtime}
                          -Wl,--pop-state)
  endif()
endforeach()
