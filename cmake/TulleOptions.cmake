include(GNUInstallDirs)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TULLE_CCACHE ccache)
if(TULLE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TULLE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TULLE_CCACHE})
endif()

# What every target of the project is compiled with; not exported to consumers.
add_library(tulle_build_options INTERFACE)
target_compile_options(tulle_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion>
  # Bit-identical results need one meaning of a*b+c everywhere: contraction only where the code asks for it.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(TULLE_SANITIZE)
  target_compile_options(tulle_build_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TULLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(tulle_build_options INTERFACE -fsanitize=${TULLE_SANITIZE})
endif()
if(TULLE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TULLE_FUZZ needs clang (libFuzzer), not ${CMAKE_CXX_COMPILER_ID}: cmake --preset fuzz")
  endif()
  # What the fuzzer watches; each fuzzer links its own main().
  target_compile_options(tulle_build_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()
