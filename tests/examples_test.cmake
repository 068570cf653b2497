# cmake -DSOURCE=... -DBUILD=... -DLIBDIR=... -DCXX=... -P examples_test.cmake
#
# What a user of the library does: install, build the examples with find_package and one with pkg-config, run them.
# The installed tree is moved first, and a second one is staged with DESTDIR: nothing may remember where it was.
cmake_minimum_required(VERSION 3.25)
set(dir ${BUILD}/examples-test)
file(REMOVE_RECURSE ${dir})
file(MAKE_DIRECTORY ${dir})

# must(what COMMAND...): runs it and leaves what it printed in `output`.
function(must what)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed (${code}): ${ARGN}\n${out}${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()
function(expect what pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${what} printed\n${output}\nwhich does not match: ${pattern}")
  endif()
  message("${what}: ${output}")
  set(first "${CMAKE_MATCH_1}" PARENT_SCOPE)
  set(second "${CMAKE_MATCH_2}" PARENT_SCOPE)
endfunction()

must("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${dir}/before)
file(RENAME ${dir}/before ${dir}/moved)
must("staged install" ${CMAKE_COMMAND} -E env DESTDIR=${dir}/stage ${CMAKE_COMMAND} --install ${BUILD} --prefix /opt/braid)
set(staged ${dir}/stage/opt/braid)

# Nothing private, and no path of the build.
file(GLOB_RECURSE headers ${dir}/moved/include/*.h ${dir}/moved/include/*.hpp)
foreach(header ${headers})
  file(READ ${header} text)
  if(header MATCHES "-inl\\.h$|_ref\\.h$|_test\\.h$|test_dir" OR text MATCHES "#include <(hwy|oneapi|CLI|gtest)")
    message(FATAL_ERROR "${header} is private")
  endif()
endforeach()
file(GLOB_RECURSE texts ${dir}/moved/${LIBDIR}/*.cmake ${dir}/moved/${LIBDIR}/*.pc)
foreach(file ${texts})
  file(READ ${file} text)
  string(FIND "${text}" ${BUILD} at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder")
  endif()
endforeach()

must("configure" ${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${dir}/build -G Ninja -DCMAKE_CXX_COMPILER=${CXX}
     -DCMAKE_PREFIX_PATH=${dir}/moved -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=-g0 -Wall -Wextra -Werror")
must("build" ${CMAKE_COMMAND} --build ${dir}/build)

must("kernel" ${dir}/build/kernel)
expect("kernel" "^loss -?[0-9.]+\ngradient of v\\[3, 7\\]: backward -?[0-9.]+, difference -?[0-9.]+")
set(loss ${output})

# A text that a small model soon knows by heart.
foreach(i RANGE 400)
  string(APPEND text_file "A model that has read this line often enough writes it. ")
endforeach()
file(WRITE ${dir}/text ${text_file})
must("train" ${dir}/build/train ${dir}/text ${dir}/run 60)
expect("train" "parameters, 61440 bytes read, held-out loss 0\\.[0-9]+, next byte right (9[5-9]|100)\\.[0-9] %")
must("generate" ${dir}/build/generate ${dir}/run "A model that has read")
expect("generate" "^A model that has read this line often enough writes it\\. A model .*60 tokens, ended by length.*same logits")

must("c_api" ${dir}/build/c_api ${dir}/run "A model that has read" ${dir}/c.state)
expect("c_api" "^op: 1 2, 3 4, 8 10\nA model that has read this line often enough writes it\\. .*\nrestored at 21\na mistake: token 0 is -5; give ids from 0 to 255\n$")

must("mixer" ${dir}/build/mixer ${dir}/mixer-run)
expect("mixer" "^next digit right ([89][0-9]\\.[0-9]) %, after loading ([0-9.]+) %")
if(NOT first STREQUAL second)
  message(FATAL_ERROR "the loaded model is another one")
endif()

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  must("pkg-config" ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${staged}/${LIBDIR}/pkgconfig
       ${PKG_CONFIG} --cflags --libs braid)
  separate_arguments(flags UNIX_COMMAND "${output}")
  must("compile" ${CXX} -std=c++20 ${SOURCE}/examples/kernel.cpp -o ${dir}/kernel-pc ${flags})
  must("kernel by pkg-config" ${dir}/kernel-pc)
  if(NOT output STREQUAL loss)
    message(FATAL_ERROR "kernel by pkg-config printed other numbers:\n${output}")
  endif()
  message("pkg-config: the same")
  # With an older standard the first error says which one is needed, and few follow.
  execute_process(COMMAND ${CXX} -std=c++17 -fsyntax-only ${SOURCE}/examples/kernel.cpp ${flags}
                  RESULT_VARIABLE code ERROR_VARIABLE errors OUTPUT_QUIET)
  string(REGEX MATCH "error: [^\n]*" first_error "${errors}")
  string(REGEX MATCHALL "error:" all_errors "${errors}")
  list(LENGTH all_errors count)
  if(code EQUAL 0 OR NOT first_error MATCHES "-std=c\\+\\+20" OR count GREATER 40)
    message(FATAL_ERROR "C++17: exit ${code}, ${count} errors, the first: ${first_error}")
  endif()
else()
  message("pkg-config is not installed: not tested")
endif()
