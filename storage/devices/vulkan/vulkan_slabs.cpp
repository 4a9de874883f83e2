// How VulkanDevice allocates, clears, copies and releases slabs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/private_memory.hpp"
#include "storage/devices/vulkan/vulkan_device_class.hpp"

namespace gpunbd::storage::vulkan {

namespace {

// Slab::kind of a kept slab: this, and its memory type. No kind of CUDA devices is the same.
constexpr std::uint8_t kept_kind = 0x40;

bool is_lack_of_memory(VkResult error) {
    return error == VK_ERROR_OUT_OF_DEVICE_MEMORY || error == VK_ERROR_OUT_OF_HOST_MEMORY ||
           error == VK_ERROR_TOO_MANY_OBJECTS || error == VK_ERROR_MEMORY_MAP_FAILED;
}

}  // namespace

std::uint64_t VulkanDevice::free_memory() const {
    std::uint64_t free = 0;
    if (state_.device.tells_free_memory()) {
        free = state_.device.free_memory();
    } else {
        const Lock lock(mutex_);
        free = info_.total - std::min(info_.total, allocated_bytes_);
    }
    return is_system_memory() ? std::min(free, system_.available()) : free;
}

std::uint64_t VulkanDevice::available() const {
    const std::uint64_t free = free_memory();
    const Lock lock(mutex_);
    const std::uint64_t capacity =
        options_.capacity.value_or(std::numeric_limits<std::uint64_t>::max());
    const std::uint64_t own = capacity > allocated_bytes_ ? capacity - allocated_bytes_ : 0;
    return std::min(own, free - std::min(free, info_.reserve));
}

std::string VulkanDevice::reason_not_kept() const {
    std::string reason = kept_->reason_not_kept();
    if (reason.empty() && in_place_ && !kept_->allows(*memory().mapped_type)) {
        reason = "its driver does not export memory that the CPU can address; set mapped: 0";
    }
    return reason;
}

Status VulkanDevice::allocate(const SlabRequest& request, Slab& out) {
    if (failed() || (request.kept && !reason_not_kept().empty())) return Status::io_error;
    const std::uint64_t bytes = request.bytes;
    if (bytes > physical().max_allocation_bytes) return Status::no_space;
    const std::optional<std::uint64_t> address = charge(bytes);
    if (!address) return Status::no_space;
    Slab slab{.cpu = {},
              .address = *address,
              .bytes = bytes,
              .resident = request.provision == Provision::full};
    Status status = Status::io_error;
    try {
        status = fill(slab, request.kept);
    } catch (...) {  // the text of an error found no memory
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

// Gives a slab its memory.
Status VulkanDevice::fill(Slab& slab, bool kept) {
    Buffer memory;
    const VkResult result = take_memory(slab, kept, memory);
    if (is_lack_of_memory(result)) return Status::no_space;
    if (result != VK_SUCCESS) {
        state_.report(result, fmt::format("allocating {} KiB", slab.bytes >> 10));
        return Status::io_error;
    }
    set_memory(slab, std::move(memory));
    if (is_misplaced(slab)) return Status::no_space;
    return clear(slab, 0, slab.bytes);
}

bool VulkanDevice::is_misplaced(const Slab& slab) {
    if (!residency_) return false;
    if (!residency_->is_in_host_memory(state_.slabs.at(slab.address).get(), slab.bytes)) {
        return false;
    }
    LogLine(spdlog::level::warn)
        .with("device", state_.id)
        .with("bytes", slab.bytes)
        .log(
            "{}: the driver has placed a slab of {} MiB in host memory, and it is given back: the "
            "memory of the device is in use; set a larger reserve",
            state_.id, slab.bytes >> 20);
    return true;
}

void VulkanDevice::set_memory(Slab& slab, Buffer memory) {
    slab.cpu = memory.cpu();
    // The memory of a driver on the CPU may share memory pages with the heap.
    if (slab.cpu != nullptr && !physical().on_cpu()) exclude_from_forks(slab.cpu, slab.bytes);
    const Lock lock(mutex_);
    if (memory.cpu() != nullptr) mapped_bytes_ += slab.bytes;
    state_.slabs.set(slab.address, std::move(memory));
}

std::optional<std::uint64_t> VulkanDevice::charge(std::uint64_t bytes) {
    const std::uint64_t free = free_memory();
    const Lock lock(mutex_);
    if (free < bytes + info_.reserve) return std::nullopt;
    if (allocated_bytes_ + bytes > options_.capacity.value_or(~std::uint64_t{0})) {
        return std::nullopt;
    }
    const std::optional<std::uint64_t> address = state_.slabs.take();
    if (address) allocated_bytes_ += bytes;
    return address;
}

Buffer VulkanDevice::discharge(std::uint64_t address, std::uint64_t bytes) noexcept {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(bytes <= allocated_bytes_, "memory was charged before it is discharged");
    allocated_bytes_ -= bytes;
    Buffer memory = state_.slabs.give_back(address);
    GPUNBD_ASSERT(memory.cpu() == nullptr || bytes <= mapped_bytes_, "mapped memory is counted");
    if (memory.cpu() != nullptr) mapped_bytes_ -= bytes;
    return memory;
}

VkResult VulkanDevice::take_memory(Slab& slab, bool kept, Buffer& out) {
    if (may_map(slab.bytes) && (!kept || kept_->allows(*memory().mapped_type))) {
        const VkResult result = take_memory(slab, kept, *memory().mapped_type, true, out);
        if (in_place_ || !is_lack_of_memory(result)) return result;
        mapping_ended(result);
    }
    if (in_place_) return VK_ERROR_FEATURE_NOT_PRESENT;
    return take_memory(slab, kept, memory().local_type, false, out);
}

VkResult VulkanDevice::take_memory(Slab& slab, bool kept, std::uint32_t type, bool mapped,
                                   Buffer& out) {
    if (!kept) {
        return Buffer::make(state_.device, {.bytes = slab.bytes, .type = type, .mapped = mapped},
                            out);
    }
    slab.kind = static_cast<std::uint8_t>(kept_kind | type);
    return kept_->allocate(slab.bytes, type, mapped, out, slab.descriptor);
}

Status VulkanDevice::take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) {
    if (failed()) return Status::io_error;
    std::optional<std::uint64_t> address;
    {
        const Lock lock(mutex_);
        address = state_.slabs.take();
        if (address) allocated_bytes_ += record.bytes;
    }
    std::string reason = "there are too many slabs";
    Slab slab;
    if (address) {
        slab.address = *address;
        slab.bytes = record.bytes;
        reason = take_over_as_recorded(descriptor, record, slab);
    }
    if (!reason.empty()) {
        if (address) release(slab);
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .log("{}: a kept slab cannot be taken over: {}", state_.id, reason);
        return Status::io_error;
    }
    slab.resident = record.provision == Provision::full;
    slab.kind = record.kind;
    slab.descriptor = std::move(descriptor);
    out = std::move(slab);
    return Status::ok;
}

std::string VulkanDevice::take_over_as_recorded(const OwnedFd& descriptor, const SlabRecord& record,
                                                Slab& slab) {
    const std::uint32_t type = record.kind & ~std::uint32_t{kept_kind};
    if ((record.kind & kept_kind) == 0 || type >= physical().memory.memoryTypeCount) {
        return fmt::format("its kind, {}, is unknown", record.kind);
    }
    if (record.bytes == 0) return "its recorded size is 0";
    std::string reason = kept_->reason_not_kept();
    if (reason.empty()) reason = kept_->reason_not_memory(descriptor, record.bytes);
    if (!reason.empty()) return reason;
    const bool mapped = type == memory().mapped_type && may_map(record.bytes);
    if (in_place_ && !mapped) return "the CPU cannot address it";
    Buffer buffer;
    VkResult result = kept_->take_over(descriptor, record.bytes, type, mapped, buffer);
    if (result != VK_SUCCESS && mapped && !in_place_) {
        mapping_ended(result);
        result = kept_->take_over(descriptor, record.bytes, type, false, buffer);
    }
    if (result != VK_SUCCESS) return to_text(result);
    set_memory(slab, std::move(buffer));
    return {};
}

bool VulkanDevice::may_map(std::uint64_t bytes) const {
    if (!memory().mapped_type) return false;
    const Lock lock(mutex_);
    return !mapping_exhausted_ &&
           mapped_bytes_ + bytes <= options_.mapped.value_or(~std::uint64_t{0});
}

void VulkanDevice::mapping_ended(VkResult error) {
    std::uint64_t mapped = 0;
    {
        const Lock lock(mutex_);
        mapping_exhausted_ = true;
        if (std::exchange(exhaustion_logged_, true)) return;
        mapped = mapped_bytes_;
    }
    LogLine(spdlog::level::warn)
        .with("device", state_.id)
        .with("bytes", mapped)
        .log("{}: {} MiB of its memory are mapped ({}); the rest is used without a mapping",
             state_.id, mapped >> 20, to_text(error));
}

void VulkanDevice::release(Slab& slab) noexcept {
    const Buffer memory = discharge(slab.address, slab.bytes);
    slab = Slab{};
    if (memory.cpu() == nullptr) return;
    const Lock lock(mutex_);
    mapping_exhausted_ = false;
}

Status VulkanDevice::clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    if (failed()) return Status::io_error;
    const VkBuffer buffer = state_.slabs.at(slab.address).get();
    const VkResult result = service_->run([&](VkCommandBuffer commands) {
        state_.device.functions().CmdFillBuffer(commands, buffer, offset, bytes, 0);
    });
    if (result == VK_SUCCESS) return Status::ok;
    state_.report(result, fmt::format("clearing {} KiB", bytes >> 10));
    return Status::io_error;
}

Status VulkanDevice::copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                          std::uint64_t to_offset, std::uint64_t bytes) {
    if (failed()) return Status::io_error;
    const VkBufferCopy region{.srcOffset = from_offset, .dstOffset = to_offset, .size = bytes};
    const VkBuffer source = state_.slabs.at(from.address).get();
    const VkBuffer target = state_.slabs.at(to.address).get();
    const VkResult result = service_->run([&](VkCommandBuffer commands) {
        state_.device.functions().CmdCopyBuffer(commands, source, target, 1, &region);
    });
    if (result == VK_SUCCESS) return Status::ok;
    state_.report(result, fmt::format("copying {} KiB within the device", bytes >> 10));
    return Status::io_error;
}

}  // namespace gpunbd::storage::vulkan
