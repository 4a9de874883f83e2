#include "server/daemon/supervision.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// A worker may miss three consecutive rounds before the supervisor kills the process.
constexpr int rounds_per_timeout = 4;

constexpr auto release_timeout = std::chrono::seconds(10);

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

Supervision::Passed Supervision::Passed::from_environment() {
    Passed passed;
    passed.predecessor = Predecessor::from_environment();
    passed.descriptors = passed.predecessor ? passed.predecessor->take_listeners()
                                            : PassedDescriptors::from_environment();
    passed.start_gate = StartGate::in(passed.descriptors);
    if (auto socket = NotifySocket::from_environment()) {
        passed.socket = std::make_shared<const NotifySocket>(std::move(*socket));
    }
    return passed;
}

Supervision::Supervision(Passed passed)
    : predecessor(std::move(passed.predecessor)),
      descriptors(std::move(passed.descriptors)),
      start_gate(std::move(passed.start_gate)),
      socket(std::move(passed.socket)),
      watchdog_timeout(Watchdog::timeout_from_environment()),
      store(socket ? DescriptorStore::from_environment(*socket, descriptors.names()) : nullptr) {
    if (store && (predecessor || start_gate)) store->defer_messages();
}

void Supervision::notify(std::string_view message) const {
    if (!socket) return;
    if (const auto error = socket->send(message)) spdlog::warn("{}", *error);
}

void Supervision::notify_ready(bool keeps) {
    if (store && keeps) {
        if (const auto error = exit_pipe.hand_over(*socket)) spdlog::warn("{}", *error);
    }
    notify("READY=1");
}

void Supervision::release_messages() const {
    if (!store) return;
    if (const auto error = store->release_messages(release_timeout)) spdlog::error("{}", *error);
}

}  // namespace gpunbd::server
