# cmake --install: headers, libraries, the command, a CMake package with components, and pkg-config files.
#
#   find_package(tulle COMPONENTS attention)  -> tulle::attention (needs none of oneDNN, libav)
#   find_package(tulle)                       -> also tulle::tulle where it was built
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tulle)

install(DIRECTORY include/tulle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/tulle/version.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tulle)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(TARGETS tulle_attention EXPORT tulle_attention)
install(EXPORT tulle_attention NAMESPACE tulle:: FILE tulle-attention-targets.cmake DESTINATION ${package_dir})
if(TULLE_FULL)
  install(TARGETS tulle_tulle EXPORT tulle_tulle)
  install(EXPORT tulle_tulle NAMESPACE tulle:: FILE tulle-tulle-targets.cmake DESTINATION ${package_dir})
  install(FILES cmake/TulleOneDnn.cmake DESTINATION ${package_dir})
  install(TARGETS tulle)
  if(TARGET tulle_video)
    install(TARGETS tulle_video LIBRARY DESTINATION lib/tulle)  # where the command looks: ../lib/tulle
  endif()
endif()

configure_package_config_file(cmake/tulle-config.cmake.in ${PROJECT_BINARY_DIR}/tulle-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tulle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tulle-config.cmake ${PROJECT_BINARY_DIR}/tulle-config-version.cmake
        DESTINATION ${package_dir})

configure_file(cmake/tulle-attention.pc.in ${PROJECT_BINARY_DIR}/tulle-attention.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tulle-attention.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TULLE_FULL)
  get_filename_component(TULLE_ONEDNN_LIBDIR ${ONEDNN_LIBRARY} DIRECTORY)
  configure_file(cmake/tulle.pc.in ${PROJECT_BINARY_DIR}/tulle.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tulle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
