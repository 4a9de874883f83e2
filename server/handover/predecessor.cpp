#include "server/handover/predecessor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "server/base/process.hpp"
#include "server/handover/successor.hpp"

namespace gpunbd::server {

namespace {

// The predecessor gives up earlier.
constexpr std::chrono::seconds predecessor_patience{120};

OwnedFd end_in_environment(const std::string& text) {
    const auto number = decimal(text);
    if (!number || *number > 1'000'000 ||
        ::fcntl(static_cast<int>(*number), F_SETFD, FD_CLOEXEC) != 0) {
        throw std::runtime_error(
            fmt::format("{}: the socket does not exist; unset the variable", successor_variable));
    }
    return OwnedFd(static_cast<int>(*number));
}

// systemd sets SYSTEMD_EXEC_PID to the process that it has started, from which this one takes over.
void take_over_from_systemd(const OwnedFd& socket) {
    ucred predecessor{};
    socklen_t size = sizeof predecessor;
    const char* const started = std::getenv("SYSTEMD_EXEC_PID");
    if (started == nullptr ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &predecessor, &size) != 0 ||
        std::to_string(predecessor.pid) != started) {
        return;
    }
    ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
}

}  // namespace

std::unique_ptr<Predecessor> Predecessor::from_environment() {
    const auto text = take_variable(successor_variable);
    if (!text) return nullptr;
    OwnedFd socket = end_in_environment(*text);
    take_over_from_systemd(socket);
    return std::unique_ptr<Predecessor>(new Predecessor(std::move(socket)));
}

Predecessor::Predecessor(OwnedFd socket) : socket_(std::move(socket)) {
    for (;;) {
        UpgradeMessage message = socket_.receive(predecessor_patience);
        if (message.kind == MessageKind::prepare) return;
        take(std::move(message));
    }
}

void Predecessor::take(UpgradeMessage message) {
    if (message.kind == MessageKind::listener) {
        listeners_.add(body_text(message.body), std::move(message.descriptor));
    } else if (message.kind == MessageKind::device) {
        devices_.push_back(body_text(message.body));
    } else if (message.kind == MessageKind::ublk_device) {
        const auto id = decimal(body_text(message.body));
        if (!id || *id > UINT32_MAX) {
            throw std::runtime_error("received an invalid id of a ublk device");
        }
        ublk_devices_.push_back(static_cast<std::uint32_t>(*id));
    } else if (message.kind == MessageKind::calibration) {
        auto [device, found] = value_or_throw(decode_calibration(message.body));
        calibrations_.emplace(std::move(device), std::move(found));
    } else if (message.kind == MessageKind::run_time_export) {
        run_time_exports_.push_back({body_text(message.body), std::move(message.descriptor)});
    } else if (message.kind == MessageKind::import) {
        auto [name, entry] = value_or_throw(decode_import(message.body));
        contents_to_import_.push_back({std::move(name), entry, std::move(message.descriptor)});
    } else {
        throw std::runtime_error(
            fmt::format("received a message of kind {} too early", static_cast<int>(message.kind)));
    }
}

Predecessor::Rest Predecessor::take_rest() {
    socket_.send({.kind = MessageKind::prepared});
    Rest rest;
    for (;;) {
        UpgradeMessage message = socket_.receive(predecessor_patience);
        if (message.kind == MessageKind::all) return rest;
        if (message.kind == MessageKind::contents) {
            rest.contents.push_back({body_text(message.body), std::move(message.descriptor)});
        } else if (message.kind == MessageKind::origin_lock) {
            rest.origin_locks.insert_or_assign(body_text(message.body),
                                               std::move(message.descriptor));
        } else if (message.kind == MessageKind::connection) {
            rest.clients.push_back(take_client(std::move(message)));
        } else {
            throw std::runtime_error(
                fmt::format("received a message of kind {} instead of kept contents",
                            static_cast<int>(message.kind)));
        }
    }
}

Predecessor::Client Predecessor::take_client(UpgradeMessage message) {
    auto [state, later] = value_or_throw(decode_connection(message.body));
    while (state.received.size() != later) {
        const UpgradeMessage more = socket_.expect(MessageKind::received, predecessor_patience);
        if (more.body.size() > later - state.received.size()) {
            throw std::runtime_error("a connection has more received data than announced");
        }
        state.received.insert(state.received.end(), more.body.begin(), more.body.end());
    }
    return {std::make_unique<ConnectionState>(std::move(state)), std::move(message.descriptor)};
}

void Predecessor::wait_until_active() {
    socket_.send({.kind = MessageKind::ready});
    socket_.expect(MessageKind::activate, predecessor_patience);
}

}  // namespace gpunbd::server
