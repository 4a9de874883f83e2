#include "storage/devices/cuda/device_watch.hpp"

#include <new>

#include "storage/base/signals_blocked.hpp"
#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr auto check_interval = std::chrono::milliseconds(250);

}  // namespace

DeviceWatch::DeviceWatch(DeviceState& state)
    : state_(state), stream_(state.ordinal, Stream::Priority::normal) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void DeviceWatch::watch(const std::stop_token& stop) {
    use_device(state_.ordinal);
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, stop, check_interval, [&] { return stop.stop_requested(); })) {
        const cudaError_t error = cudaStreamQuery(stream_.get());
        if (error == cudaSuccess || error == cudaErrorNotReady) continue;
        try {
            state_.fail(to_text(error), "no operation (detected by the device watch)");
        } catch (const std::bad_alloc&) {  // no exception may leave the thread
            state_.fail("a CUDA error", "no operation (detected by the device watch)");
        }
        return;
    }
}

}  // namespace gpunbd::storage::cuda
