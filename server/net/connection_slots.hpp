// Limits connections. One peer gets a share of the slots at most, the last slots are reserved for
// other peers, and the number of handshakes that wait silently is bounded.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "config/options.hpp"
#include "server/base/peer.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class Session;
class Worker;
class ConnectionSlots;

// The unit of limits: an IPv4 address, an IPv6 /64 network, or a local user.
std::string peer_key(const Peer& peer);

// The slot of one connection, from accept to its end.
class Slot : public std::enable_shared_from_this<Slot>,
             public boost::intrusive::list_base_hook<
                 boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
    Slot(ConnectionSlots& slots, std::string peer, std::string listener);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    // Its handshake ends with an export. False: it has been evicted, so its client gets none. Any
    // thread.
    bool served();

    Worker* worker = nullptr;        // the worker that serves it
    std::weak_ptr<Session> session;  // used by that worker's thread only

 private:
    friend class ConnectionSlots;
    ConnectionSlots& slots_;
    const std::string peer_;
    const std::string listener_;
    // With the lock of slots_ held:
    bool counted_ = false;  // admitted
    bool evicted_ = false;
};

// The limit that refuses a connection.
enum class ConnectionLimit : std::uint8_t { connections, of_peer, reserved, handshakes };
inline constexpr std::array connection_limits{"connections", "connections_per_peer",
                                              "connections_reserved", "handshakes"};

class ConnectionSlots {
 public:
    explicit ConnectionSlots(const config::Limits& limits);

    struct Answer {
        std::shared_ptr<Slot> slot;  // null: refused
        std::string refusal;         // why
        ConnectionLimit limit{};     // if refused
        // The handshake to end for this connection, if any: the oldest one of the peer that has
        // most of them, so that a flood costs only its own slots. The oldest one goes, since a
        // client that speaks has its export within milliseconds; refusing new ones instead would
        // let silent clients deny access to all others.
        std::shared_ptr<Slot> evicted;
    };
    Answer enter(const Peer& peer);

 private:
    friend class Slot;
    static constexpr std::size_t max_known = 1024;

    struct PeerState {
        std::uint32_t connections = 0;
        std::uint32_t handshakes = 0;
        bool known = false;  // it was served an export; the most recent such peers are remembered
        std::list<std::string>::iterator place;  // in known_, if known
    };

    using Peers = std::map<std::string, PeerState>;

    // Empty: the connection is admitted.
    std::string refusal(const PeerState& peer, std::uint32_t of_listener,
                        ConnectionLimit& limit) const REQUIRES(mutex_);
    std::shared_ptr<Slot> evict() REQUIRES(mutex_);
    bool served(Slot& slot);
    void leave(Slot& slot);
    void end_handshake(Slot& slot) REQUIRES(mutex_);
    void forget_if_unused(Peers::iterator peer) REQUIRES(mutex_);

    const std::uint32_t max_connections_;
    const std::uint32_t max_per_peer_;
    const std::uint32_t reserved_;
    const std::uint32_t max_handshakes_;
    Mutex mutex_;
    std::uint32_t connections_ GUARDED_BY(mutex_) = 0;  // without those in leaving_
    // Evicted but not closed yet.
    std::uint32_t leaving_ GUARDED_BY(mutex_) = 0;
    std::uint32_t handshakes_ GUARDED_BY(mutex_) = 0;
    Peers peers_ GUARDED_BY(mutex_);
    std::map<std::string, std::uint32_t> listeners_ GUARDED_BY(mutex_);
    std::list<std::string> known_ GUARDED_BY(mutex_);  // most recent first
    // Handshakes in progress, oldest first.
    boost::intrusive::list<Slot, boost::intrusive::constant_time_size<false>> waiting_
        GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
