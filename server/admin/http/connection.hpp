// A client of the admin endpoint: its requests, one after the other, or a stream of ticks. The one
// part that knows the library for HTTP.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/admin/http/limits.hpp"
#include "server/admin/http/message.hpp"
#include "server/connection/peer.hpp"
#include "server/listening/owned_fd.hpp"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace gpunbd::server::admin {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
    // Whom it serves for. It outlives the connection. All on the thread of the io_context.
    class House {
     public:
        virtual Answer answer(const Request& request, const Connection& from) = 0;
        // True: ticks may be sent to one more, until end_stream().
        virtual bool begin_stream(Connection& to) = 0;
        virtual std::optional<std::string> tick(std::uint64_t& seen) = 0;
        virtual std::uint64_t last_event() const = 0;
        virtual void end_stream(Connection& to) noexcept = 0;
        virtual void ended(Connection& connection) noexcept = 0;

     protected:
        ~House() = default;
    };

    // `tls`: null, or what to do TLS with; it outlives this. `door`: which of the house's it came
    // through.
    Connection(boost::asio::io_context& io, OwnedFd socket, Peer peer, std::size_t door,
               ssl_ctx_st* tls, House& house, const Limits& limits);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start();
    using Clock = std::chrono::steady_clock;
    // Since when a request of it is waited for; unset: it has asked something.
    std::optional<Clock::time_point> waits_since() const { return waits_since_; }
    // There is another tick. Who is still being sent the last one misses it.
    void wake();
    void cut() noexcept;

    const Peer& peer() const { return peer_; }
    std::size_t door() const { return door_; }
    // The address and port that the client has connected to; empty: not by TCP.
    const std::string& reached() const { return reached_; }

 private:
    struct Socket;

    const std::unique_ptr<Socket> socket_;
    const Peer peer_;
    const std::size_t door_;
    const std::string reached_;
    House& house_;
    const Limits& limits_;
    std::optional<Clock::time_point> waits_since_ = Clock::now();
};

}  // namespace gpunbd::server::admin
