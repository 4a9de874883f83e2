// Looks up functions of the CUDA driver at run time. The program does not link the driver, because
// the available functions depend on the version of the driver.
#pragma once

namespace gpunbd::storage::cuda {

// The function in its form since that version of CUDA (12080 is 12.8). Null: the driver does not
// have it.
void* driver_entry(const char* name, unsigned version);

}  // namespace gpunbd::storage::cuda
