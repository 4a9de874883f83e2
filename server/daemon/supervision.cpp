#include "server/daemon/supervision.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/daemon/watchdog.hpp"

namespace gpunbd::server {

namespace {

constexpr auto release_timeout = std::chrono::seconds(10);

}  // namespace

Supervision::Passed Supervision::Passed::from_environment() {
    Passed passed;
    passed.predecessor = Predecessor::from_environment();
    passed.inherited = passed.predecessor ? passed.predecessor->take_listeners()
                                          : InheritedDescriptors::from_environment();
    passed.start_gate = StartGate::in(passed.inherited);
    if (auto socket = NotifySocket::from_environment()) {
        passed.socket = std::make_shared<const NotifySocket>(std::move(*socket));
    }
    return passed;
}

Supervision::Supervision(Passed passed)
    : predecessor(std::move(passed.predecessor)),
      inherited(std::move(passed.inherited)),
      start_gate(std::move(passed.start_gate)),
      socket(std::move(passed.socket)),
      watchdog_timeout(Watchdog::timeout_from_environment()),
      store(socket ? DescriptorStore::from_environment(*socket, inherited.names()) : nullptr) {
    if (store && (predecessor || start_gate)) store->defer_messages();
}

void Supervision::notify(std::string_view message) const {
    if (!socket) return;
    if (const auto error = socket->send(message)) spdlog::warn("{}", *error);
}

void Supervision::notify_ready(bool retains) {
    if (store && retains) {
        if (const auto error = exit_pipe.hand_over(*socket)) spdlog::warn("{}", *error);
    }
    notify("READY=1");
}

void Supervision::release_messages() const {
    if (!store) return;
    if (const auto error = store->release_messages(release_timeout)) spdlog::error("{}", *error);
}

}  // namespace gpunbd::server
