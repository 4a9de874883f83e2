// One client of the admin endpoint: reads its requests one after the other, and sends the responses
// or a stream of ticks. All members are used on the thread of the io_context.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "server/admin/http/message.hpp"
#include "server/base/peer.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {
class TlsContext;
}

namespace gpunbd::server::admin {

class Stream;

// What distinguishes one client from another: its peer_key(), but all loopback addresses are one
// client, because a local user can connect from each of them.
std::string client_key(const Peer& peer);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
    // Outlives its connections.
    class RequestHandler {
     public:
        virtual Response respond(Request request, const Connection& from) = 0;
        // Passes from.operation() and the outcome to complete(), during the call or later.
        virtual void start_operation(const std::function<void(Completion)>& operation,
                                     Connection& from) = 0;
        // Returns false if no more streams are allowed. Otherwise end_stream() ends this one.
        virtual bool begin_stream(Connection& to) = 0;
        // The next server-sent event; `seen`: the last log event that the client has.
        virtual std::optional<std::string> tick(std::uint64_t& seen) = 0;
        virtual std::uint64_t last_event() const = 0;
        virtual void end_stream(Connection& to) noexcept = 0;
        virtual void remove(Connection& connection) noexcept = 0;

     protected:
        ~RequestHandler() = default;
    };

    // `listener`: the number of the listener that accepted it.
    Connection(boost::asio::io_context& io, OwnedFd socket, Peer peer, std::size_t listener,
               std::shared_ptr<const TlsContext> tls, RequestHandler& handler,
               const Limits& limits);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start();
    using Clock = std::chrono::steady_clock;
    // Since when the endpoint has been waiting for the client: for a request, for the client to
    // read a response, or for its end. Unset: it is a stream, or it waits for an operation.
    std::optional<Clock::time_point> idle_since() const { return idle_since_; }
    // A stream sends the current tick, unless it is still sending an earlier one.
    void wake();
    // The response to the operation with this number. Ignored if the connection does not wait for
    // it any more.
    void complete(std::uint64_t operation, Response outcome);
    // Completes the current operation. The connection ends after the response.
    void complete_and_end(Response outcome);
    bool awaits_outcome() const { return awaits_outcome_; }
    // The number of the last operation.
    std::uint64_t operation() const { return operation_; }
    void close() noexcept;

    const Peer& peer() const { return peer_; }
    // See client_key().
    const std::string& client() const { return client_; }
    std::size_t listener() const { return listener_; }
    // The address and port that the client connected to; empty: not TCP.
    const std::string& local_address() const { return local_address_; }

 private:
    using Self = std::shared_ptr<Connection>;
    static boost::asio::awaitable<void> run(Self self);

    boost::asio::awaitable<void> serve();
    boost::asio::awaitable<std::optional<Request>> read_request(bool& keep_alive);
    boost::asio::awaitable<Response> await_outcome(Response pending);
    boost::asio::awaitable<bool> send(Response response, bool keep_alive, bool head_only);
    boost::asio::awaitable<void> send_error_and_linger(Response response);
    boost::asio::awaitable<void> send_ticks(Response response);

    const Peer peer_;
    const std::string client_;
    const std::size_t listener_;
    const std::string local_address_;
    RequestHandler& handler_;
    const Limits& limits_;
    const std::shared_ptr<Stream> stream_;
    boost::asio::steady_timer wake_up_;  // cancelled by a tick and by an outcome
    std::string received_;               // bytes of the next requests
    std::chrono::milliseconds patience_;
    std::optional<Clock::time_point> idle_since_ = Clock::now();
    std::uint64_t operation_ = 0;
    bool awaits_outcome_ = false;
    bool ending_ = false;  // no further request is read
    std::optional<Response> outcome_;
};

// The connections of one listener of the admin endpoint. No client may have all of them, and the
// connection that has been idle longest is closed for a new one. So neither silent clients nor
// clients that do not read their responses lock others out.
class ConnectionPool {
 public:
    explicit ConnectionPool(const Limits& limits) : limits_(limits) {}

    // For a new connection; may close another one. Returns false if there is no room.
    bool make_room(const std::string& client);
    void add(Connection& connection) {
        GPUNBD_ASSERT(!connections_.contains(&connection), "a connection is added once");
        connections_.insert(&connection);
    }
    // Returns false if no more streams are allowed.
    bool add_stream(Connection& connection);
    void remove_stream(Connection& connection) noexcept { streams_.erase(&connection); }
    void remove(Connection& connection) noexcept { connections_.erase(&connection); }

    const std::set<Connection*>& connections() const { return connections_; }
    const std::set<Connection*>& streams() const { return streams_; }

 private:
    bool close_oldest(const std::string& client);

    const Limits limits_;
    std::set<Connection*> connections_;
    std::set<Connection*> streams_;  // a subset of connections_
};

}  // namespace gpunbd::server::admin
