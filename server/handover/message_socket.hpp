// The connection between a server and its successor: a socket pair that carries each message as a
// datagram. All waiting is limited.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "server/handover/message.hpp"

namespace gpunbd::server {

class MessageSocket {
 public:
    // Takes ownership of one end.
    explicit MessageSocket(OwnedFd socket) : socket_(std::move(socket)) {}
    // Creates two ends, both close-on-exec. Throws std::system_error.
    static std::pair<OwnedFd, OwnedFd> make_pair();

    int descriptor() const { return socket_.get(); }
    // Also true if the peer has ended: receive() does not wait then.
    bool has_message() const;

    // Both throw std::runtime_error with one line: the problem, that the peer has ended, or that it
    // did not answer in time.
    void send(const UpgradeMessage& message) const;
    UpgradeMessage receive(std::chrono::milliseconds limit) const;
    // As receive(), but throws for a message of another kind.
    UpgradeMessage expect(MessageKind kind, std::chrono::milliseconds limit) const;

 private:
    OwnedFd socket_;
};

}  // namespace gpunbd::server
