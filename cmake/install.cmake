# libbraid: the rooms of src/ in one archive, its public headers, a CMake package and a pkg-config file.
# All of it can be moved after installation.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(public_include ${CMAKE_BINARY_DIR}/include)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/*.h ${CMAKE_SOURCE_DIR}/include/*.hpp
     ${CMAKE_SOURCE_DIR}/src/*.h)
add_custom_command(OUTPUT ${public_include}/stamp
                   COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${public_include}
                           -P ${CMAKE_SOURCE_DIR}/cmake/public_headers.cmake
                   COMMAND ${CMAKE_COMMAND} -E touch ${public_include}/stamp
                   DEPENDS ${headers} ${CMAKE_SOURCE_DIR}/cmake/public_headers.cmake
                   COMMENT "Laying out the public headers")
add_custom_target(public_headers ALL DEPENDS ${public_include}/stamp)

list(TRANSFORM src_rooms REPLACE "(.+)" "$<TARGET_OBJECTS:braid_\\1>" OUTPUT_VARIABLE room_objects)
add_library(libbraid STATIC ${room_objects})
add_library(braid::braid ALIAS libbraid)
add_dependencies(libbraid public_headers)
set_target_properties(libbraid PROPERTIES OUTPUT_NAME braid EXPORT_NAME braid LINKER_LANGUAGE CXX)
target_compile_features(libbraid INTERFACE cxx_std_20)
target_include_directories(libbraid INTERFACE $<BUILD_INTERFACE:${public_include}>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(libbraid PUBLIC fmt::fmt nlohmann_json::nlohmann_json
                      PRIVATE Threads::Threads OpenMP::OpenMP_CXX braid::dnnl braid::hwy braid::pcre2-8 braid::utf8proc
                              braid::sentencepiece ZLIB::ZLIB)
if(BRAID_SANITIZE) # whoever links a sanitized library needs the run-time library, too
  target_compile_options(libbraid INTERFACE -fsanitize=${BRAID_SANITIZE})
  target_link_options(libbraid INTERFACE -fsanitize=${BRAID_SANITIZE})
  set(BRAID_PC_CFLAGS -fsanitize=${BRAID_SANITIZE})
endif()

install(TARGETS braid RUNTIME COMPONENT program)
install(TARGETS libbraid EXPORT braid-targets ARCHIVE COMPONENT library)
install(DIRECTORY ${public_include}/braid TYPE INCLUDE COMPONENT library)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
configure_package_config_file(cmake/braid-config.cmake.in ${CMAKE_BINARY_DIR}/package/braid-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change anything.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/braid-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(EXPORT braid-targets NAMESPACE braid:: DESTINATION ${package_dir} COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/package/braid-config.cmake ${CMAKE_BINARY_DIR}/package/braid-config-version.cmake
              cmake/dependencies.cmake DESTINATION ${package_dir} COMPONENT library)

file(RELATIVE_PATH BRAID_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(TRANSFORM OpenMP_CXX_LIB_NAMES PREPEND -l OUTPUT_VARIABLE openmp)
list(JOIN openmp " " openmp)
set(BRAID_PC_LIBS "-ldnnl -lhwy -lpcre2-8 -lutf8proc -lsentencepiece -lz ${openmp} ${BRAID_PC_CFLAGS}") # an archive does not remember what it needs
configure_file(cmake/braid.pc.in ${CMAKE_BINARY_DIR}/package/braid.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/braid.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
