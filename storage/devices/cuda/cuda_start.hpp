// Why CUDA has no GPU, with the remedy. Independent of the toolkit.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::storage::cuda {

struct CudaStart {
    int error = 0;               // cudaError_t of cudaGetDeviceCount(); 0 if there is no GPU
    std::string error_text;      // "cudaErrorUnknown (unknown error)"
    int supported = 0;           // by libcuda.so.1: 1000 * major + 10 * minor; 0: no library
    int needed = 0;              // by this program
    bool driver_loaded = false;  // the kernel module
    bool chosen = false;         // CUDA_VISIBLE_DEVICES is set
    std::vector<std::string> cards = {};  // PCI addresses of NVIDIA cards
};

// The problem and its remedy in one line.
std::string reason_without_gpu(const CudaStart& start);

}  // namespace gpunbd::storage::cuda
