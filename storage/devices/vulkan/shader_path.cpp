#include "storage/devices/vulkan/shader_path.hpp"

#include <algorithm>
#include <bit>

#include "storage/assertions/assert.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::uint64_t word = 4;  // bytes

}  // namespace

ShaderPath::ShaderPath(VulkanState& state, const CopyShader& shader, Queue& queue,
                       const StagingMemory& staging, std::byte* table)
    : CopyPath(max_units * copy_unit_bytes),
      state_(state),
      staging_(staging),
      table_(reinterpret_cast<CopyUnit*>(table)),
      buffers_(state.device, queue.family(), depth * sizes),
      ring_(state, queue, depth) {
    for (std::uint32_t slot = 0; slot != depth; ++slot) {
        const auto* const its_units =
            reinterpret_cast<const std::byte*>(table_ + std::size_t{slot} * max_units);
        for (std::uint32_t size = 0; size != sizes; ++size) {
            const std::uint32_t number = slot * sizes + size;
            require(buffers_.begin_reusable(number), "no shader can be recorded");
            shader.record(buffers_.at(number), staging.address_of(its_units), 1U << size);
            require(buffers_.end(number), "no shader can be recorded");
        }
    }
}

void ShaderPath::warm_up() {
    for (std::uint32_t size = 0; size != sizes; ++size) {
        for (std::uint32_t i = 0; i != depth; ++i) {
            std::fill_n(units(), max_units, CopyUnit{});
            ring_.close(buffers_.at(ring_.slot() * sizes + size));
        }
        require(ring_.wait(), "the shader does not run");
    }
}

bool ShaderPath::can_take(const Copy& copy) const {
    const auto staging = reinterpret_cast<std::uintptr_t>(copy.staging);
    return CopyPath::can_take(copy) && (copy.address | copy.length | staging) % word == 0;
}

bool ShaderPath::has_room(const Copy& copy) {
    if (count_ + units_of(copy) > max_units) submit();
    return !ring_.full();
}

bool ShaderPath::add(Copy& copy) {
    GPUNBD_ASSERT(!ring_.full() && count_ + units_of(copy) <= max_units,
                  "a copy is added after has_room() was true");
    // The same copy between addresses of the device.
    Copy on_device;
    on_device.kind = copy.kind;
    on_device.length = copy.length;
    on_device.address =
        state_.slabs.at(copy.address).address() + SlabTable::offset_of(copy.address);
    if (copy.staging != nullptr) {
        on_device.staging = reinterpret_cast<std::byte*>(staging_.address_of(copy.staging));
    }
    cut_into_units(on_device, [&](const CopyUnit& unit) { units()[count_++] = unit; });
    ring_.open().push(copy);
    return false;
}

void ShaderPath::submit() {
    if (count_ != 0) close();
    ring_.submit();
}

void ShaderPath::close() {
    GPUNBD_ASSERT(count_ != 0 && count_ <= max_units, "a run has units, and not more than fit");
    const auto size = static_cast<std::uint32_t>(std::bit_width(count_ - 1));
    // The shader skips units without a length.
    std::fill(units() + count_, units() + (1U << size), CopyUnit{});
    count_ = 0;
    ring_.close(buffers_.at(ring_.slot() * sizes + size));
}

}  // namespace gpunbd::storage::vulkan
