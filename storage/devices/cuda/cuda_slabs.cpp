// How CudaDevice allocates, takes over, clears and releases slabs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/devices/cuda/cuda_device_class.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/gpu/managed_path.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr auto free_memory_is_fresh = std::chrono::milliseconds(100);

// Slab::kind: plain, or mapped with a memory type.
constexpr std::uint8_t plain_kind = 0;
constexpr std::uint8_t mapped_kind = 0x80;
constexpr std::uint32_t memory_types = 32;

std::byte* device_pointer(const Slab& slab, std::uint64_t offset) {
    return reinterpret_cast<std::byte*>(slab.address + offset);
}

// An entry without a handle. It is made before the memory, since inserting it then cannot fail.
template <typename Slabs>
typename Slabs::node_type prepare_slab() {
    Slabs one;
    one.try_emplace(0);
    return one.extract(one.begin());
}

}  // namespace

std::uint64_t CudaDevice::free_memory() const {
    use_device(state_.ordinal);
    // Pages must not leave because the driver does not say.
    return free_device_memory().value_or(info_.total);
}

std::uint64_t CudaDevice::recent_free_memory() const {
    const auto now = std::chrono::steady_clock::now();
    if (now - free_seen_at_ >= free_memory_is_fresh) {
        use_device(state_.ordinal);
        free_seen_ = free_device_memory().value_or(0);
        free_seen_at_ = now;
    }
    return free_seen_;
}

std::uint64_t CudaDevice::available() const {
    const Lock lock(mutex_);
    const std::uint64_t free = recent_free_memory();
    const std::uint64_t capacity =
        options_.capacity.value_or(std::numeric_limits<std::uint64_t>::max());
    const std::uint64_t own = capacity > allocated_bytes_ ? capacity - allocated_bytes_ : 0;
    return std::min(own, free > info_.reserve ? free - info_.reserve : 0);
}

DeviceUse CudaDevice::use(std::uint64_t) const {
    const Competition& competition = state_.competition;
    const Lock lock(mutex_);
    DeviceUse use{.mapped = mapped_bytes_};
    if (revocable_ != nullptr) {
        use.revocable = revocable_->bytes();
        use.yielded = revocable_->yielded();
        use.evictions = revocable_->evictions();
        use.revocable_excess = revocable_->excess();
    }
    if (competition.use() != GpuUse::automatic) return use;  // other programs are not detected
    use.others_compute = competition.noticed();
    use.competition_noticed = competition.times_noticed();
    return use;
}

std::string CudaDevice::reason_not_kept() const { return shareable_.reason(); }

Status CudaDevice::allocate(const SlabRequest& request, Slab& out) {
    if (failed()) return Status::io_error;
    const std::uint64_t bytes = request.bytes;
    Slab slab;
    {
        const Lock lock(mutex_);
        use_device(state_.ordinal);
        if (allocated_bytes_ + bytes > options_.capacity.value_or(~std::uint64_t{0}) ||
            recent_free_memory() < bytes + info_.reserve) {
            return Status::no_space;
        }
        const bool revocable =
            revocable_ != nullptr && !request.kept && !request.fixed && revocable_->has_room(bytes);
        if (revocable) {
            const Status status = add_revocable(bytes, slab);
            if (status != Status::ok) return status;
        } else if (!add_mapped(request, slab)) {
            const Status status =
                request.kept ? add_shared(bytes, slab) : allocate_plain(bytes, slab);
            if (status != Status::ok) return status;
        }
        slab.bytes = bytes;
        slab.resident = request.provision == Provision::full;
        allocated_bytes_ += bytes;
        free_seen_ -= std::min(free_seen_, bytes);
    }
    Status status = Status::io_error;
    try {
        status = clear(slab, 0, bytes);
    } catch (...) {  // the text of its error found no memory
        release(slab);
        throw;
    }
    if (status != Status::ok) {
        release(slab);
        return status;
    }
    out = std::move(slab);
    return Status::ok;
}

// False: allocate an unmapped slab instead.
bool CudaDevice::add_mapped(const SlabRequest& request, Slab& out) {
    if (vulkan_ == nullptr || mapping_exhausted_) return false;
    auto added = prepare_slab<MappedSlabs>();
    std::string reason;
    bool had = false;
    if (mapped_bytes_ + request.bytes > options_.mapped.value_or(~std::uint64_t{0})) {
        reason = "the limit of mapped memory is reached";
    } else {
        had = allocate_mapped(*vulkan_, request.bytes, request.kept ? &out.descriptor : nullptr,
                              added.mapped(), reason);
        mapping_exhausted_ = !had;
    }
    if (had) {
        add_slab(std::move(added), request.bytes, out);
        out.kind = static_cast<std::uint8_t>(mapped_kind | vulkan_->memory_type());
    } else if (!std::exchange(exhaustion_logged_, true)) {
        LogLine(spdlog::level::warn)
            .with("device", state_.id)
            .with("bytes", mapped_bytes_)
            .log("{}: {} MiB of its memory are mapped ({}); the rest is used without a mapping",
                 state_.id, mapped_bytes_ >> 20, reason);
    }
    return had;
}

void CudaDevice::add_slab(MappedSlabs::node_type slab, std::uint64_t bytes, Slab& out) noexcept {
    const MappedMemory& memory = slab.mapped();
    if (memory.mapping.cpu != nullptr) mapped_bytes_ += bytes;
    out.cpu = memory.mapping.cpu;
    out.address = reinterpret_cast<std::uintptr_t>(memory.opaque.device);
    out.handle = slab.key() = next_handle_++;
    mapped_slabs_.insert(std::move(slab));
}

void CudaDevice::add_slab(SharedSlabs::node_type slab, Slab& out) noexcept {
    out.address = slab.mapped().address;
    out.handle = slab.key() = next_handle_++;
    shared_slabs_.insert(std::move(slab));
}

Status CudaDevice::allocate_plain(std::uint64_t bytes, Slab& out) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        return Status::no_space;
    }
    if (error != cudaSuccess) return failure(error, fmt::format("allocating {} KiB", bytes >> 10));
    out.address = reinterpret_cast<std::uintptr_t>(memory);
    return Status::ok;
}

Status CudaDevice::add_revocable(std::uint64_t bytes, Slab& out) {
    const cudaError_t error = revocable_->allocate(bytes, out.address);
    if (error == cudaErrorMemoryAllocation) return Status::no_space;
    if (error != cudaSuccess) {
        return failure(error, fmt::format("allocating {} KiB of revocable memory", bytes >> 10));
    }
    out.revocable = true;
    return Status::ok;
}

Status CudaDevice::add_shared(std::uint64_t bytes, Slab& out) {
    if (!shareable_.reason().empty()) return Status::io_error;
    auto added = prepare_slab<SharedSlabs>();
    const CUresult error = shareable_.allocate(bytes, added.mapped(), out.descriptor);
    if (error == CUDA_SUCCESS) {
        add_slab(std::move(added), out);
        return Status::ok;
    }
    if (error == CUDA_ERROR_OUT_OF_MEMORY) return Status::no_space;
    return failure(shareable_.to_text(error),
                   fmt::format("allocating {} KiB that outlive the process", bytes >> 10));
}

Status CudaDevice::take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) {
    if (failed()) return Status::io_error;
    const Lock lock(mutex_);
    use_device(state_.ordinal);
    Slab slab;
    const std::string reason = take_over_as_recorded(descriptor, record, slab);
    if (!reason.empty()) {
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .log("{}: a kept slab cannot be taken over: {}", state_.id, reason);
        return Status::io_error;
    }
    slab.bytes = record.bytes;
    slab.resident = record.provision == Provision::full;
    slab.kind = record.kind;
    slab.descriptor = std::move(descriptor);
    allocated_bytes_ += record.bytes;
    free_seen_at_ = {};
    out = std::move(slab);
    return Status::ok;
}

// Returns an empty text, or the reason for a failure.
std::string CudaDevice::take_over_as_recorded(const OwnedFd& descriptor, const SlabRecord& record,
                                              Slab& out) {
    std::string reason = reason_not_gpu_memory(descriptor);
    if (!reason.empty()) return reason;
    if (record.bytes == 0) return "its recorded size is 0";
    if (record.kind == plain_kind) {
        if (!shareable_.reason().empty()) return shareable_.reason();
        auto added = prepare_slab<SharedSlabs>();
        const CUresult error = shareable_.take_over(descriptor, record.bytes, added.mapped());
        if (error == CUDA_ERROR_INVALID_DEVICE) return "it is memory of another GPU";
        if (error != CUDA_SUCCESS) return shareable_.to_text(error);
        add_slab(std::move(added), out);
        return {};
    }
    const std::uint32_t type = record.kind & ~std::uint32_t{mapped_kind};
    if ((record.kind & mapped_kind) == 0 || type >= memory_types) {
        return fmt::format("its kind, {}, is unknown", record.kind);
    }
    // The contents do not depend on the mapping, which takes long and is left to address().
    auto added = prepare_slab<MappedSlabs>();
    if (!take_over_unmapped(descriptor, record.bytes, added.mapped(), reason)) return reason;
    add_slab(std::move(added), record.bytes, out);
    if (vulkan_ == nullptr) log_unmapped("no memory can be mapped now");
    return {};
}

void CudaDevice::log_unmapped(std::string_view reason) noexcept {
    if (std::exchange(unmapped_logged_, true)) return;
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("device", state_.id)
            .log("{}: kept slabs that were mapped are used without a mapping: {}", state_.id,
                 reason);
    });
}

std::byte* CudaDevice::address(const Slab& slab) {
    if (failed()) return nullptr;
    const Lock lock(mutex_);
    const auto found = mapped_slabs_.find(slab.handle);
    if (vulkan_ == nullptr || found == mapped_slabs_.end()) return nullptr;
    MappedMemory& memory = found->second;
    std::string reason;
    if (memory.mapping.cpu == nullptr) {
        const std::uint32_t type = slab.kind & ~std::uint32_t{mapped_kind};
        if (!vulkan_->import(slab.descriptor, slab.bytes, type, memory.mapping, reason)) {
            log_unmapped(reason);
            return nullptr;
        }
        mapped_bytes_ += slab.bytes;
        mapping_exhausted_ = false;  // memory that an earlier process had mapped may be free again
    }
    return memory.mapping.cpu;
}

void CudaDevice::release(Slab& slab) noexcept {
    use_device(state_.ordinal);
    if (slab.revocable) revocable_->free(slab.address);  // without the lock, since it may wait
    const Lock lock(mutex_);
    if (slab.revocable) {
        // Its memory is free already.
    } else if (slab.handle == 0) {
        cudaFree(device_pointer(slab, 0));
        static_cast<void>(cudaGetLastError());
    } else if (const auto shared = shared_slabs_.find(slab.handle); shared != shared_slabs_.end()) {
        shareable_.release(shared->second);
        shared_slabs_.erase(shared);
    } else if (const auto mapped = mapped_slabs_.find(slab.handle); mapped != mapped_slabs_.end()) {
        GPUNBD_ASSERT(mapped->second.mapping.cpu == nullptr || slab.bytes <= mapped_bytes_,
                      "mapped memory is counted");
        if (mapped->second.mapping.cpu != nullptr) mapped_bytes_ -= slab.bytes;
        release_mapped(vulkan_.get(), mapped->second);
        mapped_slabs_.erase(mapped);
        mapping_exhausted_ = false;
    }
    GPUNBD_ASSERT(slab.bytes <= allocated_bytes_, "the memory of a slab is counted");
    allocated_bytes_ -= slab.bytes;
    free_seen_at_ = {};
    slab = Slab{};
}

Status CudaDevice::clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    if (failed()) return Status::io_error;
    if (slab.revocable && state_.revocable_access.by_cpu()) {
        return zero_managed(slab.address + offset, bytes);
    }
    const Lock lock(service_mutex_);
    use_device(state_.ordinal);
    cudaError_t error = state_.zero(device_pointer(slab, offset), bytes, service_.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(service_.get());
    if (error == cudaSuccess) return Status::ok;
    return failure(error, fmt::format("clearing {} KiB at device address {:#x}", bytes >> 10,
                                      slab.address + offset));
}

Status CudaDevice::copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                        std::uint64_t to_offset, std::uint64_t bytes) {
    if (failed()) return Status::io_error;
    const Lock lock(service_mutex_);
    use_device(state_.ordinal);
    // Not as cudaMemcpyDeviceToDevice: memory of cudaMallocManaged may be elsewhere.
    cudaError_t error =
        cudaMemcpyAsync(device_pointer(to, to_offset), device_pointer(from, from_offset), bytes,
                        cudaMemcpyDefault, service_.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(service_.get());
    if (error == cudaSuccess) return Status::ok;
    return failure(error,
                   fmt::format("copying {} KiB from device address {:#x} to {:#x}", bytes >> 10,
                               from.address + from_offset, to.address + to_offset));
}

Status CudaDevice::failure(cudaError_t error, const std::string& what) {
    return failure(to_text(error), what);
}

Status CudaDevice::failure(const std::string& error, const std::string& what) {
    if (context_lost(service_.get())) {
        state_.fail(error, what);
    } else {
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .with("error", error)
            .log("{}: {} failed: {}", state_.id, what, error);
    }
    return Status::io_error;
}

}  // namespace gpunbd::storage::cuda
