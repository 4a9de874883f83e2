#include "storage/devices/cuda/competition_watch.hpp"

#include <atomic>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/devices/cuda/copy_kernel.hpp"
#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::size_t probe_line = 64;  // bytes: the word, followed by the destination of the probe
constexpr std::size_t counter_bytes = 256;
constexpr auto probe_interval = std::chrono::microseconds(20);
constexpr auto long_enough = std::chrono::milliseconds(50);  // enough to know that a kernel is slow

// No exception may leave the thread.
void report(const DeviceState& state, bool kernels) noexcept {
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", state.id)
            .with("kernels", kernels)
            .say("{}: {}", state.id,
                 kernels ? "no other program computes on it: small copies use kernels again"
                         : "another program computes on it: copies use the copy engines and the "
                           "mapping only");
    });
}

}  // namespace

CompetitionWatch::CompetitionWatch(DeviceState& state)
    : state_(state),
      word_(state.ordinal, 2 * probe_line, state.numa_node),
      scratch_(state.ordinal, 2 * counter_bytes),
      stream_(state.ordinal, Stream::Priority::high) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void CompetitionWatch::begin() {
    {
        const std::lock_guard lock(mutex_);
        wanted_ = true;
    }
    changed_.notify_one();
}

void CompetitionWatch::watch(const std::stop_token& stop) {
    use_device(state_.ordinal);
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return wanted_; })) {
        wanted_ = false;
        probe_until_over(stop, lock);
    }
}

void CompetitionWatch::probe_until_over(const std::stop_token& stop,
                                        std::unique_lock<std::mutex>& lock) {
    bool reported = false;
    while (!state_.competition.kernels_allowed()) {
        changed_.wait_for(lock, stop, state_.competition.until_probe(), [] { return false; });
        if (stop.stop_requested() || state_.failed()) return;
        lock.unlock();
        const Clock::duration took = probe(stop);
        const bool over = state_.competition.probe_took(took, Clock::now());
        // Report only suspicions that a probe confirms.
        if (took >= Competition::slow && !reported) {
            report(state_, false);
            reported = true;
        }
        if (over && reported) report(state_, true);
        lock.lock();
    }
}

CompetitionWatch::Clock::duration CompetitionWatch::probe(const std::stop_token& stop) {
    auto* const word = reinterpret_cast<std::uint32_t*>(word_.get());
    auto* const blocks_done = reinterpret_cast<std::uint32_t*>(scratch_.get());
    const Clock::time_point begin = Clock::now();
    CopyUnit units[max_copy_units] = {};
    units[0] = {
        .from = scratch_.get() + counter_bytes, .to = word_.get() + probe_line, .length = 16};
    const cudaError_t error =
        launch_copy_kernel(units, 1, blocks_done, word, ++number_, stream_.get());
    if (error != cudaSuccess) return long_enough;  // the channels and the watch report the error
    for (;;) {
        const bool ended = std::atomic_ref(*word).load(std::memory_order_acquire) == number_;
        const Clock::duration took = Clock::now() - begin;
        if (ended || stop.stop_requested() || state_.failed()) return took;
        std::this_thread::sleep_for(took < Competition::slow ? probe_interval
                                                             : 10 * probe_interval);
    }
}

}  // namespace gpunbd::storage::cuda
