# Every test binary runs on the best path; the kernels' also with each lower instruction set forced.
include(GoogleTest)
get_property(all_targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(t ${all_targets})
  if(t MATCHES "^test_")
    add_test(NAME ${t} COMMAND ${t} --gtest_brief=1)
    set_tests_properties(${t} PROPERTIES LABELS fast)
  endif()
endforeach()
