#include "storage/devices/cuda/shareable_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include "storage/assertions/assert.hpp"
#include "storage/devices/cuda/device_state.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr unsigned since = 10020;  // the CUDA version of all these calls
constexpr unsigned since_the_beginning = 6000;
constexpr auto handle_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

template <class Function>
bool find(Function& function, const char* name, unsigned version = since) {
    function = reinterpret_cast<Function>(driver_entry(name, version));
    return function != nullptr;
}

}  // namespace

ShareableMemory::ShareableMemory(int ordinal) : ordinal_(ordinal) {
    wanted_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted_.requestedHandleTypes = handle_type;
    wanted_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted_.location.id = ordinal;
    std::size_t granularity = 0;
    if (!find_functions()) {
        reason_ = "the driver is too old to share GPU memory by descriptors";
    } else if (!supported()) {
        reason_ = "the GPU's memory cannot be shared by descriptors";
    } else if (const CUresult error =
                   call_.granularity(&granularity, &wanted_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
               error != CUDA_SUCCESS || granularity == 0) {
        reason_ = "the driver cannot share this GPU's memory: " + to_text(error);
    }
    granularity_ = granularity;
}

bool ShareableMemory::find_functions() {
    return find(call_.granularity, "cuMemGetAllocationGranularity") &&
           find(call_.create, "cuMemCreate") && find(call_.release, "cuMemRelease") &&
           find(call_.reserve, "cuMemAddressReserve") &&
           find(call_.give_back, "cuMemAddressFree") && find(call_.map, "cuMemMap") &&
           find(call_.unmap, "cuMemUnmap") && find(call_.set_access, "cuMemSetAccess") &&
           find(call_.export_handle, "cuMemExportToShareableHandle") &&
           find(call_.import_handle, "cuMemImportFromShareableHandle") &&
           find(call_.properties, "cuMemGetAllocationPropertiesFromHandle") &&
           find(call_.attribute, "cuDeviceGetAttribute", since_the_beginning) &&
           find(call_.error_name, "cuGetErrorName", since_the_beginning);
}

bool ShareableMemory::supported() const {
    // Runtime ordinals are also driver device numbers.
    const auto has = [&](CUdevice_attribute name) {
        int value = 0;
        return call_.attribute(&value, name, ordinal_) == CUDA_SUCCESS && value != 0;
    };
    return has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
           has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

std::uint64_t ShareableMemory::whole(std::uint64_t bytes) const {
    GPUNBD_ASSERT(reason_.empty(), "memory is shared only by a driver that can do it");
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
}

CUresult ShareableMemory::allocate(std::uint64_t bytes, Piece& out,
                                   OwnedFd& descriptor) const noexcept {
    Piece piece{.bytes = whole(bytes)};
    CUresult error = call_.create(&piece.handle, piece.bytes, &wanted_, 0);
    if (error != CUDA_SUCCESS) return error;
    error = map(piece);
    if (error != CUDA_SUCCESS) return error;
    int exported = -1;
    error = call_.export_handle(&exported, piece.handle, handle_type, 0);
    if (error != CUDA_SUCCESS) {
        release(piece);
        return error;
    }
    ::fcntl(exported, F_SETFD, FD_CLOEXEC);
    descriptor = OwnedFd(exported);
    out = piece;
    return CUDA_SUCCESS;
}

CUresult ShareableMemory::take_over(const OwnedFd& descriptor, std::uint64_t bytes,
                                    Piece& out) const noexcept {
    Piece piece{.bytes = whole(bytes)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver wants it so
    void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    CUresult error = call_.import_handle(&piece.handle, handle, handle_type);
    if (error != CUDA_SUCCESS) return error;
    CUmemAllocationProp found{};
    error = call_.properties(&found, piece.handle);
    const bool ours = found.location.type == wanted_.location.type && found.location.id == ordinal_;
    if (error == CUDA_SUCCESS && !ours) error = CUDA_ERROR_INVALID_DEVICE;
    if (error != CUDA_SUCCESS) {
        call_.release(piece.handle);
        return error;
    }
    error = map(piece);  // fails if the record claims more than there is
    if (error == CUDA_SUCCESS) out = piece;
    return error;
}

// On failure, releases the piece.
CUresult ShareableMemory::map(Piece& piece) const noexcept {
    CUresult error = call_.reserve(&piece.address, piece.bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        call_.release(piece.handle);
        piece = Piece{};
        return error;
    }
    error = call_.map(piece.address, piece.bytes, 0, piece.handle, 0);
    if (error != CUDA_SUCCESS) {
        call_.give_back(piece.address, piece.bytes);
        call_.release(piece.handle);
        piece = Piece{};
        return error;
    }
    CUmemAccessDesc access{};
    access.location = wanted_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    error = call_.set_access(piece.address, piece.bytes, &access, 1);
    if (error != CUDA_SUCCESS) release(piece);
    return error;
}

void ShareableMemory::release(Piece& piece) const noexcept {
    GPUNBD_ASSERT(piece.address != 0 && piece.bytes != 0, "memory is released once");
    call_.unmap(piece.address, piece.bytes);
    call_.give_back(piece.address, piece.bytes);
    call_.release(piece.handle);
    piece = Piece{};
}

std::string ShareableMemory::to_text(CUresult error) const {
    const char* name = nullptr;
    if (call_.error_name == nullptr || call_.error_name(error, &name) != CUDA_SUCCESS) {
        return fmt::format("CUDA error {}", static_cast<int>(error));
    }
    return name;
}

}  // namespace gpunbd::storage::cuda
