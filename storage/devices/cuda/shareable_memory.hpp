// Plain GPU memory that has a descriptor, and so outlives the process: what cudaMalloc gives has
// none.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

namespace gpunbd::storage::cuda {

// Safe for use by several threads; the CUDA device is current.
class ShareableMemory {
 public:
    struct Piece {
        CUdeviceptr address = 0;
        std::uint64_t bytes = 0;  // all of what the driver gives
        CUmemGenericAllocationHandle handle = 0;
    };

    explicit ShareableMemory(int ordinal);

    // Why there is none of it, in a few words; empty: there is, and the rest may be called.
    const std::string& why_not() const { return why_not_; }

    // CUDA_SUCCESS, or nothing has been had. The descriptor is the caller's.
    CUresult allocate(std::uint64_t bytes, Piece& out, int& descriptor) const noexcept;
    // By a descriptor that allocate() has given in another process for as many bytes; it stays the
    // caller's. CUDA_ERROR_INVALID_DEVICE: it is memory of another GPU.
    CUresult adopt(int descriptor, std::uint64_t bytes, Piece& out) const noexcept;
    // Nothing uses the memory any more.
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
    std::string why_not_;
};

}  // namespace gpunbd::storage::cuda
