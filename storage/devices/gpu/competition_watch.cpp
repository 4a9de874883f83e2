#include "storage/devices/gpu/competition_watch.hpp"

#include <chrono>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

constexpr auto check_interval = std::chrono::milliseconds(250);

constexpr auto probe_interval = std::chrono::microseconds(20);
constexpr auto long_enough = std::chrono::milliseconds(50);  // enough to know that a kernel is slow

// No exception may leave the thread.
void report(const GpuState& state, bool kernels) noexcept {
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", state.id)
            .with("kernels", kernels)
            .log("{}: {}", state.id,
                 kernels ? "no other program computes on it: small copies use kernels again"
                         : "another program computes on it: copies use the copy engines and the "
                           "mapping only");
    });
}

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

CompetitionWatch::CompetitionWatch(GpuState& state, Probe probe)
    : state_(state), probe_(std::move(probe)) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void CompetitionWatch::begin() {
    {
        const Lock lock(mutex_);
        wanted_ = true;
    }
    changed_.notify_one();
}

void CompetitionWatch::watch(const std::stop_token& stop) {
    const Lock lock(mutex_);
    while (changed_.wait(mutex_, stop, [&]() REQUIRES(mutex_) { return wanted_; })) {
        wanted_ = false;
        probe_until_over(stop);
    }
}

void CompetitionWatch::probe_until_over(const std::stop_token& stop) {
    bool reported = false;
    while (!state_.competition.kernels_allowed()) {
        changed_.wait_for(mutex_, stop, state_.competition.until_probe(), [] { return false; });
        if (stop.stop_requested() || state_.failed()) return;
        const Unlock unlock(mutex_);
        const Clock::duration took = probe(stop);
        const bool over = state_.competition.probe_took(took, Clock::now());
        // Report only suspicions that a probe confirms.
        if (took >= Competition::slow && !reported) {
            report(state_, false);
            reported = true;
        }
        if (over && reported) report(state_, true);
    }
}

CompetitionWatch::Clock::duration CompetitionWatch::probe(const std::stop_token& stop) {
    if (!probe_.launch()) return long_enough;
    // The launch does not count: it may have to wait for other calls of the driver in this process,
    // such as allocations.
    const Clock::time_point begin = Clock::now();
    for (;;) {
        const bool ended = probe_.ended();
        const Clock::duration took = Clock::now() - begin;
        if (ended || stop.stop_requested() || state_.failed()) return took;
        std::this_thread::sleep_for(took < Competition::slow ? probe_interval
                                                             : 10 * probe_interval);
    }
}

}  // namespace gpunbd::storage
