// A whole run: threads that drive connections, warm-up, a measured window, a watchdog, and the
// result.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/connection.hpp"
#include "tests/bench/cpu_time.hpp"
#include "tests/bench/driver.hpp"

namespace gpunbd::bench {

using DriverPtr = std::unique_ptr<Driver>;

struct Window {
    double warm_up = 0.5;  // seconds
    double measured = 2;   // 0: until every driver has finished its plan
    int stall = 30;        // seconds without any reply after which the server counts as hung
    std::optional<pid_t> server;
};

struct WindowResult {
    double seconds = 0;
    std::optional<std::uint64_t> server_cpu_ns;
    std::uint64_t client_cpu_ns = 0;
    std::string failure;  // empty: no failure
};

namespace detail {

struct Control {
    std::atomic<Phase> phase{Phase::warm_up};
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t running = 0;
    std::string failure;

    void thread_ended(const std::string& why) {
        const std::lock_guard lock(mutex);
        --running;
        if (!why.empty()) {
            if (failure.empty()) failure = why;
            phase = Phase::stop;
        }
        changed.notify_all();
    }
};

// A connection that is alone on its thread blocks in recv(): one system call instead of two.
inline void drive_one(Driver& driver, Control& control) {
    while (driver.pump(control.phase.load(std::memory_order_relaxed))) {
        int flags = 0;
        if (driver.sending()) {
            pollfd wait{.fd = driver.fd(), .events = POLLIN | POLLOUT, .revents = 0};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR) fail_errno("poll");
            if ((wait.revents & ~POLLOUT) == 0) continue;
            flags = MSG_DONTWAIT;
        }
        driver.receive(flags, control.phase);
    }
}

inline void drive_several(const std::vector<Driver*>& drivers, Control& control) {
    std::vector<pollfd> waits(drivers.size());
    for (std::size_t i = 0; i < drivers.size(); ++i) waits[i].fd = drivers[i]->fd();
    while (true) {
        const auto phase = control.phase.load(std::memory_order_relaxed);
        bool busy = false;
        for (std::size_t i = 0; i < drivers.size(); ++i) {
            const bool active = drivers[i]->pump(phase);
            waits[i].events =
                static_cast<short>((active ? POLLIN : 0) | (drivers[i]->sending() ? POLLOUT : 0));
            busy = busy || active;
        }
        if (!busy) return;
        if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) fail_errno("poll");
        for (std::size_t i = 0; i < drivers.size(); ++i)
            if ((waits[i].revents & ~POLLOUT) != 0)
                drivers[i]->receive(MSG_DONTWAIT, control.phase);
    }
}

inline void drive(const std::vector<Driver*>& drivers, Control& control) {
    std::string why;
    try {
        if (drivers.size() == 1)
            drive_one(*drivers.front(), control);
        else
            drive_several(drivers, control);
    } catch (const std::exception& error) {
        why = error.what();
    }
    control.thread_ended(why);
}

inline std::uint64_t beats_of(const std::vector<DriverPtr>& drivers) {
    std::uint64_t sum = 0;
    for (const auto& driver : drivers) sum += driver->beats();
    return sum;
}

// Waits until every thread has ended, one has failed, or the time is over. Disconnects if there is
// no progress.
inline void wait(const std::vector<DriverPtr>& drivers, Control& control, int stall,
                 std::optional<std::chrono::steady_clock::time_point> until) {
    using Clock = std::chrono::steady_clock;
    std::unique_lock lock(control.mutex);
    auto last_beats = beats_of(drivers);
    auto last_moved = Clock::now();
    const auto over = [&] { return control.running == 0 || (until && !control.failure.empty()); };
    while (!over()) {
        const auto now = Clock::now();
        if (until && now >= *until) return;
        auto wake = now + std::chrono::milliseconds(500);
        if (until) wake = std::min(wake, *until);
        control.changed.wait_until(lock, wake, over);
        if (const auto beats = beats_of(drivers); beats != last_beats) {
            last_beats = beats;
            last_moved = Clock::now();
        } else if (Clock::now() - last_moved > std::chrono::seconds(stall)) {
            if (control.failure.empty())
                control.failure = "no reply for " + std::to_string(stall) + " s";
            control.phase = Phase::stop;
            for (const auto& driver : drivers) shutdown(driver->fd(), SHUT_RDWR);
            last_moved = Clock::now();
        }
    }
}

}  // namespace detail

// Runs the drivers' plans on `threads` threads. Each driver has been started.
inline WindowResult run_window(const std::vector<DriverPtr>& drivers, std::size_t threads,
                               const Window& window) {
    using Clock = std::chrono::steady_clock;
    detail::Control control;
    threads = std::clamp(threads, std::size_t{1}, drivers.size());
    std::vector<std::vector<Driver*>> shares(threads);
    for (std::size_t i = 0; i < drivers.size(); ++i)
        shares[i % threads].push_back(drivers[i].get());
    control.running = threads;

    WindowResult result;
    const bool timed = window.measured > 0;
    if (!timed) control.phase = Phase::measure;
    const auto after = [](double seconds) {
        return Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    std::vector<std::jthread> workers;
    workers.reserve(threads);
    for (const auto& share : shares)
        workers.emplace_back([&share, &control] { detail::drive(share, control); });

    if (timed) detail::wait(drivers, control, window.stall, after(window.warm_up));
    const auto cpu = [&] { return window.server ? process_cpu_ns(*window.server) : std::nullopt; };
    const auto server_before = cpu();
    const auto client_before = own_cpu_ns();
    const auto begin = now_ns();
    if (timed) {
        auto expected = Phase::warm_up;
        control.phase.compare_exchange_strong(expected, Phase::measure);
        detail::wait(drivers, control, window.stall, after(window.measured));
        control.phase = Phase::stop;
    } else {
        detail::wait(drivers, control, window.stall, std::nullopt);
    }
    result.seconds = static_cast<double>(now_ns() - begin) / 1e9;
    result.client_cpu_ns = own_cpu_ns() - client_before;
    const auto server_after = cpu();
    if (server_before && server_after) result.server_cpu_ns = *server_after - *server_before;

    detail::wait(drivers, control, window.stall, std::nullopt);
    workers.clear();
    result.failure = control.failure;
    return result;
}

}  // namespace gpunbd::bench
