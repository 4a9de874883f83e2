#include "storage/devices/gpu/device_watch.hpp"

#include <chrono>
#include <utility>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

constexpr auto check_interval = std::chrono::milliseconds(250);

}  // namespace

DeviceWatch::DeviceWatch(const GpuState& state, std::function<void()> check)
    : state_(state), check_(std::move(check)) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void DeviceWatch::watch(const std::stop_token& stop) {
    const Lock lock(mutex_);
    while (!state_.failed() && !stopped_.wait_for(mutex_, stop, check_interval,
                                                  [&] { return stop.stop_requested(); })) {
        check_();
    }
}

}  // namespace gpunbd::storage
