#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/tls.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

// Kernel TLS for a socket, so that the kernel's NBD client can use it: checks the support of the
// kernel, and whether the kernel has taken over.

// Loads the module if necessary. nullopt: the kernel supports TLS.
std::optional<Failure> kernel_lacks_tls();

// Call it after a handshake. nullopt: the kernel handles both directions, and OpenSSL holds no
// data.
std::optional<Failure> not_all_in_kernel(SSL& ssl);

// Sends and receives whole messages until a deadline, optionally over TLS. It never reads beyond
// the requested bytes, so that the next user of the socket finds the following data.
class Stream {
 public:
    // `socket`: connected, non-blocking.
    Stream(OwnedFd socket, Deadline until) : socket_(std::move(socket)), until_(until) {}

    // nullopt: all bytes were sent or received.
    std::optional<Failure> send(std::span<const std::byte> bytes);
    std::optional<Failure> receive(std::span<std::byte> into);

    // Performs the client's TLS handshake. If the kernel is to do TLS, fails unless it has taken
    // over.
    std::optional<Failure> start_tls(std::shared_ptr<const Tls> tls);

    // Releases the socket after the handshake, in blocking mode, without TLS or with kernel TLS.
    // Call it once.
    Expected<OwnedFd, Failure> release_socket();

 private:
    std::optional<Failure> wait_for(short events) const;
    std::optional<Failure> wait_for_tls(int result) const;

    OwnedFd socket_;
    Deadline until_;
    std::shared_ptr<const Tls> tls_;
    Ssl ssl_;  // null: no TLS
};

}  // namespace gpunbd::client
