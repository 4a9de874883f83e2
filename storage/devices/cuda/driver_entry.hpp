// Functions of the CUDA driver, found at run time: nothing here is linked to it, and drivers differ
// in what they have.
#pragma once

namespace gpunbd::storage::cuda {

// As since that version of CUDA: 12080 is 12.8. Null: the driver has none.
void* driver_entry(const char* name, unsigned version);

}  // namespace gpunbd::storage::cuda
