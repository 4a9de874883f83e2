#include "storage/devices/cuda/kernel_probe.hpp"

#include <atomic>

#include "storage/devices/cuda/copy_kernel.hpp"
#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::size_t probe_line = 64;  // bytes: the word, followed by the destination of the probe
constexpr std::size_t counter_bytes = 256;

}  // namespace

KernelProbe::KernelProbe(DeviceState& state)
    : state_(state),
      word_(state.ordinal, 2 * probe_line, state.numa_node),
      scratch_(state.ordinal, 2 * counter_bytes),
      stream_(state.ordinal, Stream::Priority::high) {}

bool KernelProbe::launch() {
    use_device(state_.ordinal);
    CopyUnit units[max_copy_units] = {};
    units[0] = {
        .from = scratch_.get() + counter_bytes, .to = word_.get() + probe_line, .length = 16};
    return launch_copy_kernel(units, 1, reinterpret_cast<std::uint32_t*>(scratch_.get()),
                              reinterpret_cast<std::uint32_t*>(word_.get()), ++number_,
                              stream_.get()) == cudaSuccess;
}

bool KernelProbe::ended() const {
    auto* const word = reinterpret_cast<std::uint32_t*>(word_.get());
    return std::atomic_ref(*word).load(std::memory_order_acquire) == number_;
}

}  // namespace gpunbd::storage::cuda
