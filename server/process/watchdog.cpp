#include "server/process/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "config/quote.hpp"
#include "server/keeping/environment.hpp"

namespace gpunbd::server {

namespace {

// A worker may come late to three turns in a row before the supervisor ends the process.
constexpr int looks_per_patience = 4;

}  // namespace

std::optional<std::chrono::microseconds> Watchdog::patience_from_environment() {
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

Watchdog::Watchdog(boost::asio::io_context& io, std::chrono::microseconds patience,
                   const Workers& workers, std::function<void()> tell)
    : workers_(workers),
      interval_(patience / looks_per_patience),
      tell_(std::move(tell)),
      timer_(io) {}

void Watchdog::go_on() {
    if (waits_) return;
    timer_.expires_after(interval_);
    timer_.async_wait([this](boost::system::error_code error) {
        waits_ = false;
        if (error) return;
        go_on();  // first: what follows may find no memory
        if (all_work()) tell_();
    });
    waits_ = true;
}

bool Watchdog::all_work() {
    if (silent_ && *silent_ != 0) return false;
    const bool asked = silent_ != nullptr;
    silent_ = nullptr;
    const auto silent = std::make_shared<std::atomic<std::size_t>>(workers_.size());
    for (const auto& worker : workers_) {
        worker->post([silent](WorkerContext&) { --*silent; });
    }
    silent_ = silent;
    return asked;
}

}  // namespace gpunbd::server
