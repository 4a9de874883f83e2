#include "storage/cuda/device_watch.hpp"

#include <pthread.h>

#include <csignal>

#include "storage/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr auto look_every = std::chrono::milliseconds(250);

}  // namespace

DeviceWatch::DeviceWatch(DeviceState& state)
    : state_(state), stream_(state.ordinal, Stream::Priority::normal) {
    // Signals are for the main thread.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void DeviceWatch::watch(const std::stop_token& stop) {
    use_device(state_.ordinal);
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, stop, look_every, [&] { return stop.stop_requested(); })) {
        const cudaError_t error = cudaStreamQuery(stream_.get());
        if (error == cudaSuccess || error == cudaErrorNotReady) continue;
        state_.fail(to_text(error), "nothing: it was noticed by the watch");
        return;
    }
}

}  // namespace gpunbd::storage::cuda
