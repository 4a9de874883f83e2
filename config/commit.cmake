# Writes config/commit.hpp at each build, which changes only when the commit does. Without git, or
# in a tree that is not its own checkout, the commit is empty.
cmake_minimum_required(VERSION 3.25)
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(commit "")
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define GPUNBD_COMMIT \"@commit@\"\n" @ONLY)
