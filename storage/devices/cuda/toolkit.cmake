# Finds the CUDA Toolkit. Without one, CUDA is disabled with a message. If the machine has an NVIDIA card, the message
# names the packages to install.
set(cuda_least 12.0)  # since 12.0 cudaGetDriverEntryPoint reports whether it has found a function
set(cuda_tested 13.0)
set(GPUNBD_SYSTEM_ROOT "" CACHE PATH "Root of /proc, /dev and /sys, in which cards are detected; for tests")
mark_as_advanced(GPUNBD_SYSTEM_ROOT)

function(gpunbd_find_card result)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS ${GPUNBD_SYSTEM_ROOT}/proc/driver/nvidia OR EXISTS ${GPUNBD_SYSTEM_ROOT}/dev/nvidia0)
    set(${result} TRUE PARENT_SCOPE)
  endif()
  # Cards without a driver: a display controller (class 03) of NVIDIA (10de).
  file(GLOB cards ${GPUNBD_SYSTEM_ROOT}/sys/bus/pci/devices/*)
  foreach(card ${cards})
    if(EXISTS ${card}/vendor AND EXISTS ${card}/class)
      file(READ ${card}/vendor vendor)
      file(READ ${card}/class class)
      if(vendor MATCHES "^0x10de" AND class MATCHES "^0x03")
        set(${result} TRUE PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

find_program(GPUNBD_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
set(GPUNBD_TOOLKIT FALSE)
if(GPUNBD_NVCC)
  execute_process(COMMAND ${GPUNBD_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "release ([0-9]+\\.[0-9]+)")
    set(lack "${GPUNBD_NVCC} does not tell its version")
  elseif(CMAKE_MATCH_1 VERSION_LESS cuda_least)
    set(lack "${GPUNBD_NVCC} is of CUDA ${CMAKE_MATCH_1}, which is too old")
  else()
    set(GPUNBD_TOOLKIT TRUE)
  endif()
else()
  set(lack "no CUDA Toolkit (nvcc) found")
endif()

gpunbd_find_card(card)
if(GPUNBD_TOOLKIT OR (DEFINED CACHE{GPUNBD_CUDA} AND NOT $CACHE{GPUNBD_CUDA}))
  # Nothing is missing, or it is not wanted.
elseif(card)
  string(REPLACE . - package cuda-toolkit-${cuda_tested})
  message(WARNING
    "gpunbd: ${lack}: building without cuda:N devices, though there is an NVIDIA card.\n"
    "Install the CUDA Toolkit ${cuda_tested}, which is tested (${cuda_least} is the least that will do): the package "
    "${package} of NVIDIA's repository. Debian 12's own nvidia-cuda-toolkit is 11.8: too old. "
    "How to is told at\nhttps://docs.nvidia.com/cuda/cuda-installation-guide-linux/\n"
    "Then build again.")
else()
  message(STATUS "gpunbd: ${lack}: building without cuda:N devices")
endif()
