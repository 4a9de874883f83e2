// The way to whoever supervises this process: datagrams, as sd_notify(3) describes them. systemd
// reads them, or `gpunbd keep`.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class NotifySocket {
 public:
    // To the address in NOTIFY_SOCKET, which is taken out of the environment; null: there is none.
    static std::optional<NotifySocket> from_environment();

    // What from_environment() has found, for a process that is started in place of this one.
    const std::string& address() const { return address_; }

    // "READY=1" and the like, with descriptors, of which one message takes max_descriptors. What
    // went wrong, if it did. Waits for a supervisor that is busy, but not for ever. Any thread.
    static constexpr std::size_t max_descriptors = 253;  // SCM_MAX_FD
    std::optional<std::string> send(std::string_view message,
                                    std::span<const int> descriptors = {}) const;

    // Returns once the supervisor has handled all that was sent before, or with what went wrong.
    std::optional<std::string> barrier(std::chrono::milliseconds timeout) const;

 private:
    NotifySocket(std::string address, OwnedFd socket)
        : address_(std::move(address)), socket_(std::move(socket)) {}

    std::string address_;
    OwnedFd socket_;
};

// "RELOADING=1", with the time that Type=notify-reload wants to see.
std::string reloading_message();

}  // namespace gpunbd::server
