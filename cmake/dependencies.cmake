# What the library is linked with. Read by Braid's own build and by find_package(braid).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(OpenMP COMPONENTS CXX) # only to hold oneDNN to one thread per call
find_dependency(fmt)
find_dependency(nlohmann_json)
find_dependency(ZLIB)
# oneDNN's own CMake package would ask for OpenCL headers, which nothing here needs.
foreach(name dnnl hwy pcre2-8 utf8proc sentencepiece)
  if(NOT TARGET braid::${name})
    find_library(BRAID_${name}_LIBRARY ${name} REQUIRED)
    mark_as_advanced(BRAID_${name}_LIBRARY)
    add_library(braid::${name} UNKNOWN IMPORTED)
    set_target_properties(braid::${name} PROPERTIES IMPORTED_LOCATION ${BRAID_${name}_LIBRARY})
  endif()
endforeach()
