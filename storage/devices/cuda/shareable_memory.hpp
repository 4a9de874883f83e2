// GPU memory with a descriptor, so that it can outlive the process. Memory of cudaMalloc has none.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage::cuda {

// Thread-safe. The CUDA device is current in all calls.
class ShareableMemory {
 public:
    struct Piece {
        CUdeviceptr address = 0;
        std::uint64_t bytes = 0;  // rounded up to the granularity of the driver
        CUmemGenericAllocationHandle handle = 0;
    };

    explicit ShareableMemory(int ordinal);

    // Why it is not available; empty: it is available, and the other functions may be called.
    const std::string& reason() const { return reason_; }

    // Allocates nothing if it fails.
    CUresult allocate(std::uint64_t bytes, Piece& out, OwnedFd& descriptor) const noexcept;
    // Imports what allocate() has allocated in another process with the same size. The caller keeps
    // the descriptor. CUDA_ERROR_INVALID_DEVICE: memory of another GPU.
    CUresult take_over(const OwnedFd& descriptor, std::uint64_t bytes, Piece& out) const noexcept;
    // The memory must not be in use.
    void release(Piece& piece) const noexcept;

    std::string to_text(CUresult error) const;

 private:
    struct Functions {
        decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
        decltype(&cuMemCreate) create = nullptr;
        decltype(&cuMemRelease) release = nullptr;
        decltype(&cuMemAddressReserve) reserve = nullptr;
        decltype(&cuMemAddressFree) give_back = nullptr;
        decltype(&cuMemMap) map = nullptr;
        decltype(&cuMemUnmap) unmap = nullptr;
        decltype(&cuMemSetAccess) set_access = nullptr;
        decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
        decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
        decltype(&cuMemGetAllocationPropertiesFromHandle) properties = nullptr;
        decltype(&cuDeviceGetAttribute) attribute = nullptr;
        decltype(&cuGetErrorName) error_name = nullptr;
    };

    bool find_functions();
    bool supported() const;
    std::uint64_t whole(std::uint64_t bytes) const;
    CUresult map(Piece& piece) const noexcept;

    const int ordinal_;
    Functions call_;
    CUmemAllocationProp wanted_{};
    std::uint64_t granularity_ = 0;
    std::string reason_;
};

}  // namespace gpunbd::storage::cuda
