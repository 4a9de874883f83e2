#include "server/daemon/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "config/quote.hpp"
#include "server/base/environment.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// A worker may miss three consecutive rounds before the supervisor kills the process.
constexpr int rounds_per_timeout = 4;

}  // namespace

std::optional<std::chrono::microseconds> Watchdog::timeout_from_environment() {
    const auto text = take_variable("WATCHDOG_USEC");
    const auto pid = take_variable("WATCHDOG_PID");
    if (!text) return std::nullopt;
    const auto number = decimal(*text);
    if (!number || *number == 0 || *number > INT64_MAX / 2) {
        throw std::runtime_error(fmt::format(
            "WATCHDOG_USEC: {} is not a time in microseconds; unset it", config::in_quotes(*text)));
    }
    if (pid && decimal(*pid) != static_cast<std::uint64_t>(::getpid())) return std::nullopt;
    return std::chrono::microseconds(*number);
}

Watchdog::Watchdog(boost::asio::io_context& io, std::chrono::microseconds timeout,
                   const Workers& workers, Notify notify)
    : workers_(workers),
      notify_(std::move(notify)),
      poll_(io, timeout / rounds_per_timeout, [this] {
          if (all_responded()) notify_();
          return true;
      }) {}

bool Watchdog::all_responded() {
    if (pending_ && *pending_ != 0) return false;
    const bool posted = pending_ != nullptr;
    pending_ = nullptr;
    const auto pending = std::make_shared<std::atomic<std::size_t>>(workers_.size());
    for (const auto& worker : workers_) {
        worker->post([pending](WorkerContext&) {
            GPUNBD_ASSERT(*pending != 0, "each worker responds once in a round");
            --*pending;
        });
    }
    pending_ = pending;
    return posted;
}

}  // namespace gpunbd::server
