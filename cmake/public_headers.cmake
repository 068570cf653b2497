# cmake -DSOURCE=... -DOUT=... -P public_headers.cmake
#
# Lays out the headers that users include: include/braid/*, and of src/ what these reach and nothing else. Inside
# the project a header is "room/x.h"; outside it is "braid/room/x.h", so that the one include folder has one name
# in it and no "model/config.h" of a user can be taken for ours.
file(REMOVE_RECURSE ${OUT})
file(GLOB queue RELATIVE ${SOURCE}/include/braid ${SOURCE}/include/braid/*.hpp ${SOURCE}/include/braid/*.h)
foreach(header ${queue})
  set(from_${header} ${SOURCE}/include/braid/${header})
endforeach()
while(queue)
  list(POP_FRONT queue header)
  file(READ ${from_${header}} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(line ${includes})
    string(REGEX REPLACE ".*\"(.+)\"" "\\1" next ${line})
    if(NOT DEFINED from_${next})
      set(from_${next} ${SOURCE}/src/${next})
      list(APPEND queue ${next})
    endif()
  endforeach()
  string(REPLACE "#include \"" "#include \"braid/" text "${text}")
  file(WRITE ${OUT}/braid/${header} "${text}")
endwhile()
