// The way between a server and the one in its place: a pair of sockets, each message a datagram.
// Neither waits for the other for ever.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "server/handover/message.hpp"

namespace gpunbd::server {

class MessageSocket {
 public:
    // Takes one end.
    explicit MessageSocket(OwnedFd socket) : socket_(std::move(socket)) {}
    // Two ends, both close-on-exec. Throws std::system_error.
    static std::pair<OwnedFd, OwnedFd> make_pair();

    int descriptor() const { return socket_.get(); }
    // Or the other side has gone: receive() does not wait.
    bool has_message() const;

    // Both throw std::runtime_error with one clear line: what is wrong, that the other side has
    // gone, or that it was too slow.
    void send(const UpgradeMessage& message) const;
    UpgradeMessage receive(std::chrono::milliseconds limit) const;
    // The same, and only a message of this kind will do.
    UpgradeMessage expect(MessageKind kind, std::chrono::milliseconds limit) const;

 private:
    OwnedFd socket_;
};

}  // namespace gpunbd::server
