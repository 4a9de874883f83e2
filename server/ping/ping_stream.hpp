// Bytes to and from a server that is pinged, in TLS once that has begun. One time holds for all of
// it together, so that a server that trickles is late as well.
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "server/client/nbd_target.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

// All of it throws std::runtime_error where it fails, or where the time is over.
class PingStream {
 public:
    PingStream(const NbdTarget& target, std::chrono::seconds timeout);

    void send(std::span<const std::byte> bytes);
    // All of them.
    void receive(std::span<std::byte> into);
    // The client's part of a handshake. `target` says whose certificates count.
    void start_tls(const NbdTarget& target);

 private:
    using Clock = std::chrono::steady_clock;
    struct FreeTls {
        void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
        void operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }
    };

    void connect(const NbdTarget& target);
    bool connect_to(const sockaddr& address, socklen_t length);
    std::size_t receive_some(std::span<std::byte> into);
    void wait(short events) const;
    void wait_for_tls(int result) const;

    const Clock::time_point end_;
    std::optional<OwnedFd> socket_;
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::unique_ptr<SSL, FreeTls> tls_;  // null: in the clear
};

}  // namespace gpunbd::server
