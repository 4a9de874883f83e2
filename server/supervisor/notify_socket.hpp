// Sends messages to the supervisor of this process, systemd or `gpunbd keep`, as datagrams
// (sd_notify(3)).
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
    // Uses the address in NOTIFY_SOCKET, which is removed from the environment. Null: there is
    // none.
    static std::optional<NotifySocket> from_environment();
    NotifySocket(NotifySocket&&) = default;
    NotifySocket& operator=(NotifySocket&&) = default;
    virtual ~NotifySocket() = default;

    // The address, for a process that replaces this one.
    const std::string& address() const { return address_; }

    // Sends lines such as "READY=1", with at most max_descriptors descriptors. Returns the problem,
    // if any. Waits a limited time for a busy supervisor. Any thread.
    static constexpr std::size_t max_descriptors = 253;  // SCM_MAX_FD
    virtual std::optional<std::string> send(std::string_view message,
                                            std::span<const int> descriptors = {}) const;

    // Returns once the supervisor has handled all earlier messages, or with the problem.
    std::optional<std::string> barrier(std::chrono::milliseconds timeout) const;

 protected:
    explicit NotifySocket(std::string address, OwnedFd socket = {})
        : address_(std::move(address)), socket_(std::move(socket)) {}

 private:
    std::string address_;
    OwnedFd socket_;
};

// "RELOADING=1" with the time that Type=notify-reload requires.
std::string reloading_message();

}  // namespace gpunbd::server
