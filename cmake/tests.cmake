# `fast`: everything `make test` runs. `threads`: what ThreadSanitizer should see. The kernels' tests force every instruction
# set the machine has by themselves; the *_base_isa entries run those rooms once more on the lowest, without the tests that
# train for long: what they see beyond the exact gradients does not depend on the instruction set.
set(limit 600)
if(BRAID_SANITIZE)
  set(limit 5400)
endif()
set(long_training "--gtest_filter=-*OverfitsOneBatch*:*TheLossFalls*")
get_property(all_targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(t ${all_targets})
  if(t MATCHES "^test_")
    add_test(NAME ${t} COMMAND ${t} --gtest_brief=1)
    set_tests_properties(${t} PROPERTIES LABELS fast TIMEOUT ${limit})
  endif()
endforeach()
foreach(t test_base test_kernels test_model test_train test_infer)
  if(TARGET ${t})
    set_tests_properties(${t} PROPERTIES LABELS "fast;threads")
    add_test(NAME ${t}_base_isa COMMAND ${t} --gtest_brief=1 ${long_training})
    set_tests_properties(${t}_base_isa PROPERTIES LABELS fast TIMEOUT ${limit} ENVIRONMENT BRAID_ISA=base)
  endif()
endforeach()

# `walk` is not `fast`: thousands of runs of the program. walk_short is a fixed sample of them.
add_test(NAME walk COMMAND braid_walk $<TARGET_FILE:braid> ${CMAKE_SOURCE_DIR})
set_tests_properties(walk PROPERTIES LABELS walk TIMEOUT 14400 RUN_SERIAL ON)
add_test(NAME walk_short COMMAND braid_walk $<TARGET_FILE:braid> ${CMAKE_SOURCE_DIR} --short)
set_tests_properties(walk_short PROPERTIES LABELS fast TIMEOUT ${limit})

foreach(name ${fuzz_names})
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${CMAKE_SOURCE_DIR}/tests/data/fuzz/${name})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS fast TIMEOUT ${limit})
endforeach()

# Installs into a folder below the build, moves it, builds the examples against it and runs them.
add_test(NAME examples COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DBUILD=${CMAKE_BINARY_DIR}
         -DLIBDIR=${CMAKE_INSTALL_LIBDIR} -DCXX=${CMAKE_CXX_COMPILER} -P ${CMAKE_SOURCE_DIR}/tests/examples_test.cmake)
set_tests_properties(examples PROPERTIES LABELS fast TIMEOUT ${limit})
