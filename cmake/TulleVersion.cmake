configure_file(${CMAKE_CURRENT_SOURCE_DIR}/include/tulle/version.hpp.in
               ${CMAKE_CURRENT_BINARY_DIR}/include/tulle/version.hpp @ONLY)

# The commit is asked for at every build, and the file is rewritten only when it changed.
add_custom_target(tulle_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_CURRENT_SOURCE_DIR}
          -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/generated/commit.inc
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_commit.cmake
  BYPRODUCTS ${CMAKE_CURRENT_BINARY_DIR}/generated/commit.inc
  COMMENT "")
