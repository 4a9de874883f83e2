// A session: the life of one connection. It only moves down: negotiating -> serving -> draining ->
// closed.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "protocol/negotiation.hpp"
#include "server/access/offered_exports.hpp"
#include "server/connection/connection.hpp"
#include "server/connection/connection_slots.hpp"
#include "server/connection/peer.hpp"
#include "server/connection/task.hpp"
#include "server/exports/export_registry.hpp"
#include "server/listening/owned_fd.hpp"
#include "server/tls/tls_context.hpp"

namespace gpunbd::server {

struct SessionLimits {
    std::chrono::seconds handshake{10};
    std::uint64_t in_flight = 64 << 20;  // bytes that this connection may have under way
    std::chrono::seconds farewell{10};   // for answers still to be sent once nothing more is read
    std::chrono::milliseconds idle{0};   // without a request; 0: for as long as the client likes
    std::chrono::seconds unreachable{
        0};  // nothing sent is acknowledged; 0: until the kernel ends it
};

class Session : public std::enable_shared_from_this<Session> {
 public:
    Session(WorkerContext& worker, Socket socket, Peer peer, const ExportRegistry& exports,
            const SessionLimits& limits, std::shared_ptr<Slot> slot = nullptr,
            std::shared_ptr<const TlsContext> tls = nullptr,
            std::unique_ptr<const ConnectionState> earlier = nullptr);
    ~Session();

    // Serves, from the greeting to the end, which it logs. Then it calls `ended`, which must not
    // destroy it yet; destroyed before, it calls nobody.
    void start(std::function<void(Session&)> ended);

    // Answers what is in flight, refuses what is new, then closes.
    void drain() noexcept;
    // Closes now. Operations finish as soon as their copies have ended.
    void cut(const char* reason) noexcept;
    // While it negotiates: another has its place.
    void evict() noexcept;
    // Nothing is taken from its client until go_on(), if it serves an export whose contents outlive
    // the server, or comes to that.
    void pause() noexcept;
    void go_on() noexcept;
    // While it pauses: nothing of its client's is under way.
    bool quiet() const;
    // The socket, and where another process goes on with it; once it is quiet. Null: it cannot.
    struct Moving {
        OwnedFd socket;
        ConnectionState state;
    };
    std::unique_ptr<Moving> move_away();
    // Another process goes on, with those that move_away() has given; the others drain.
    void leave() noexcept;

    // The configuration has been read again: other rates hold, and who may not stay goes at once.
    void look_at_access() noexcept;

    // For who looks after memory that is lent.
    Connection& connection() { return *connection_; }

 private:
    using Clock = std::chrono::steady_clock;

    Task<> run();
    Task<> live();
    Task<bool> negotiate();
    // What an earlier process has begun. false: it cannot be.
    bool take_over(const ConnectionState& earlier);
    bool contents_stay() const;
    Task<bool> start_tls();
    Task<bool> send_all(std::vector<std::byte> bytes);
    Task<> serve();
    Task<> settle();
    // The one line in the log of a connection.
    void report_end(bool failed);
    // Empty: it may.
    std::string why_not_stay() const;
    // It serves from now on; others are told what.
    void tell_serving();
    void set_deadline(std::chrono::seconds after, const char* reason);
    void look_whether_idle(std::uint32_t looks, std::uint64_t requests);
    // From here on its client is looked after, as the limits say.
    void watch_client();
    void look_whether_reachable(std::uint32_t looks);

    WorkerContext& worker_;
    Peer peer_;
    const std::shared_ptr<ConnectionCounters> counters_;
    const std::shared_ptr<Connection> connection_;
    const ExportRegistry& exports_;
    OfferedExports offered_;
    const SessionLimits limits_;
    const std::shared_ptr<Slot> slot_;                  // null: places are not counted
    const std::shared_ptr<const TlsContext> tls_;       // null: there is none to be had
    std::optional<protocol::Negotiation> negotiation_;  // while negotiating
    std::unique_ptr<const ConnectionState> earlier_;    // null: it begins here
    std::string export_name_;
    std::unique_ptr<ExportUse::Place> place_;              // among the export's connections
    std::string reason_;                                   // why the negotiation failed
    HandshakeFailure failure_ = HandshakeFailure::closed;  // in short
    std::string tls_words_;  // of what kind it is; empty: in the clear
    bool draining_ = false;
    bool pausing_ = false;
    bool moves_away_ = false;
    boost::asio::steady_timer deadline_;
    boost::asio::steady_timer idle_timer_;
    boost::asio::steady_timer reach_timer_;
    Clock::time_point started_ = Clock::now();
    std::function<void(Session&)> ended_;
    Task<> running_;  // the first to go
};

}  // namespace gpunbd::server
