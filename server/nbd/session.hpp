#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "protocol/negotiation.hpp"
#include "server/base/peer.hpp"
#include "server/base/task.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/offered_exports.hpp"
#include "server/nbd/connection.hpp"
#include "server/net/connection_slots.hpp"
#include "server/net/transport/tls_context.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// A session's wait for a clone that another thread makes. The session and the request may end in
// any order.
class CloneWait {
 public:
    // `wake` is called on the thread of `io` after the answer, unless this is destroyed before.
    // Created and destroyed on that thread.
    CloneWait(boost::asio::io_context& io, std::function<void()> wake);
    ~CloneWait();
    CloneWait(const CloneWait&) = delete;
    CloneWait& operator=(const CloneWait&) = delete;

    // For CloneRequest::answer. If the last copy is destroyed uncalled, the answer is that the
    // server is ending.
    std::function<void(std::string why_not)> answer() const;
    // The answer, on the thread of `io`. Nothing: there is none yet.
    const std::optional<std::string>& answered() const;

 private:
    struct State;
    struct Answer;
    const std::shared_ptr<State> state_;
};

// The life of one connection: negotiating -> serving -> draining -> closed, in this order.
struct SessionLimits {
    std::chrono::seconds handshake{10};
    std::uint64_t in_flight = 64 << 20;   // bytes that its unanswered requests may have
    std::chrono::seconds linger{10};      // to send answers once nothing more is read
    std::chrono::milliseconds idle{0};    // without a request; 0: no limit
    std::chrono::seconds unreachable{0};  // without acknowledgements; 0: the limit of the kernel
};

class Session : public std::enable_shared_from_this<Session> {
 public:
    Session(WorkerContext& worker, Socket socket, Peer peer, const ExportRegistry& exports,
            const SessionLimits& limits, std::shared_ptr<Slot> slot = nullptr,
            std::shared_ptr<const TlsContext> tls = nullptr,
            std::unique_ptr<const ConnectionState> earlier = nullptr);
    ~Session();

    // Serves from the greeting to the end, logs the end and calls `ended`, which must not destroy
    // the session yet. If it is destroyed before, nothing is called.
    void start(std::function<void(Session&)> ended);

    // Completes the requests in flight, refuses new ones, then closes.
    void drain() noexcept;
    // Closes now. Operations end as soon as their copies have.
    void cut(const char* reason) noexcept;
    // Ends the handshake, since another connection gets its slot.
    void evict() noexcept;
    // If the contents of the export outlive the server, nothing is taken from the client until
    // resume(). This also holds for an export that the session opens later.
    void quiesce() noexcept;
    void resume() noexcept;
    // While quiesced: nothing of the client is in flight.
    bool quiet() const;
    // While quiet: the socket, and the state for another process to continue from. Null: it cannot
    // continue.
    struct Moving {
        OwnedFd socket;
        ConnectionState state;
    };
    std::unique_ptr<Moving> move_away();
    // Another process has taken over. A session returned by move_away() ends here; one that still
    // negotiates ends once its answers have been sent; any other one drains.
    void leave() noexcept;

    // The configuration has been reloaded: applies its rates, or closes the connection if the
    // client may not use the export any more.
    void check_access() noexcept;
    // Operations of a client that check_access() has refused are still running.
    bool has_refused_operations() const { return refused_ && connection_->has_operations(); }

    Connection& connection() { return *connection_; }

 private:
    using Clock = ConnectionFacts::Clock;

    Task<> run();
    Task<> live();
    Task<> serve();
    Task<> settle();
    // See Transport::peer_closes_first().
    Task<> wait_for_close();
    // Writes the one log line about a connection.
    void report_end(bool failed);
    void publish_facts();

    // session_handshake.cpp
    Task<bool> negotiate();
    Task<bool> start_tls();
    // Waits until the clone that the client opens has been made, or cannot be made.
    Task<bool> wait_for_clone();
    Task<bool> send_all(std::vector<std::byte> bytes);
    // Returns false if the connection has ended, or if the server stops: all that the client has
    // sent is answered, and it may never send the rest.
    Task<bool> wait_for_client(Transport::Wait direction);
    // Returns true after leave(), when no reply is left to send.
    bool stops_negotiating();

    void set_deadline(std::chrono::seconds after, const char* reason);
    void watch_client();
    void check_idle(std::uint32_t checks, std::uint64_t requests);
    void check_reachable(std::uint32_t checks);

    // reason_to_close() returns nothing if the client may stay.
    void follow_name();
    std::string reason_to_close() const;

    // Continues what another process has begun. false: it cannot.
    bool take_over(const ConnectionState& earlier);
    bool contents_outlive_server() const;

    WorkerContext& worker_;
    Peer peer_;
    const std::shared_ptr<ConnectionCounters> counters_;
    const std::shared_ptr<Connection> connection_;
    const ExportRegistry& exports_;
    OfferedExports offered_;
    const SessionLimits limits_;
    const std::shared_ptr<Slot> slot_;                  // null: connections are not counted
    const std::shared_ptr<const TlsContext> tls_;       // null: TLS is off
    std::optional<protocol::Negotiation> negotiation_;  // while negotiating
    std::unique_ptr<const ConnectionState> earlier_;    // null: a new connection
    std::string export_name_;
    std::unique_ptr<ExportUse::Lease> lease_;
    std::string reason_;                                   // why the negotiation failed
    HandshakeFailure failure_ = HandshakeFailure::closed;  // likewise, for the metrics
    std::string tls_description_;                          // empty: no TLS
    bool draining_ = false;
    bool refused_ = false;  // by check_access()
    bool quiescing_ = false;
    bool moved_ = false;    // by move_away()
    bool leaving_ = false;  // while negotiating
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer idle_timer_;
    boost::asio::steady_timer reach_timer_;
    Clock::time_point started_ = Clock::now();
    std::function<void(Session&)> ended_;
    Task<> running_;  // destroyed first
};

}  // namespace gpunbd::server
