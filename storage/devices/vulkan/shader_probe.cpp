#include "storage/devices/vulkan/shader_probe.hpp"

#include <cstring>

#include "storage/devices/gpu/copy_unit.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::size_t part = 64;  // bytes: the unit, what it copies, and where it copies to
constexpr std::uint32_t copied = 16;

}  // namespace

ShaderProbe::ShaderProbe(VulkanState& state, const CopyShader& shader, Queue& queue)
    : staging_(state.device, 3 * part),
      buffers_(state.device, queue.family(), 1),
      ring_(state, queue, 1) {
    std::byte* const from = staging_.get() + part;
    std::memset(from, 0x5a, copied);
    const CopyUnit unit{.from = reinterpret_cast<const std::byte*>(staging_.address_of(from)),
                        .to = reinterpret_cast<std::byte*>(staging_.address_of(from + part)),
                        .length = copied};
    std::memcpy(staging_.get(), &unit, sizeof(unit));
    require(buffers_.begin_reusable(0), "no shader can be recorded");
    shader.record(buffers_.at(0), staging_.address_of(staging_.get()), 1);
    require(buffers_.end(0), "no shader can be recorded");
}

bool ShaderProbe::launch() {
    if (ring_.full()) return false;  // the last one has not ended
    ring_.close(buffers_.at(0));
    ring_.submit();
    return true;
}

bool ShaderProbe::ended() {
    CopyQueue none;
    return ring_.idle() || ring_.take_ended(none);
}

void ShaderProbe::check() {
    ring_.close(buffers_.at(0));
    require(ring_.wait(), "the shader does not run");
    const std::byte* const from = staging_.get() + part;
    if (std::memcmp(from, from + part, copied) != 0) {
        throw Unavailable("the shader does not copy");
    }
}

}  // namespace gpunbd::storage::vulkan
