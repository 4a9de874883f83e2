// Whole messages to and from a server, until a deadline, in TLS once that has begun. It reads no
// byte beyond what is asked for: whoever is given the socket afterwards finds the next one there.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/tls.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

class Stream {
 public:
    // `socket`: connected, non-blocking.
    Stream(OwnedFd socket, Deadline until) : socket_(std::move(socket)), until_(until) {}

    // Nothing, where all has been sent or received.
    std::optional<Failure> send(std::span<const std::byte> bytes);
    std::optional<Failure> receive(std::span<std::byte> into);

    // The client's part of a handshake. Where the kernel is to do TLS, it does from then on, or it
    // is a failure.
    std::optional<Failure> start_tls(std::shared_ptr<const Tls> tls);

    // What comes behind the handshake is somebody else's: the socket in blocking mode, in the clear
    // or with TLS done by the kernel. Once.
    Or<OwnedFd> hand_over();

 private:
    std::optional<Failure> wait_for(short events) const;
    std::optional<Failure> wait_for_tls(int result) const;

    OwnedFd socket_;
    Deadline until_;
    std::shared_ptr<const Tls> tls_;
    Ssl ssl_;  // null: in the clear
};

}  // namespace gpunbd::client
