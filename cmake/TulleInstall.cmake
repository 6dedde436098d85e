# cmake --install: headers, libraries, the command, a CMake package with components, and pkg-config files.
