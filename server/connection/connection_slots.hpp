// Who may connect. Places are limited, and no peer may take them all: it has a share, the last
// places are kept for others, and of silent handshakes only so many may wait.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config/options.hpp"
#include "server/connection/peer.hpp"

namespace gpunbd::server {

class Session;
class Worker;
class ConnectionSlots;

// What counts as one peer: an IPv4 address, an IPv6 network of 64 bits, or a user of this machine.
std::string peer_key(const Peer& peer);

// One connection's place, from accept to its end.
class Slot : public std::enable_shared_from_this<Slot>,
             public boost::intrusive::list_base_hook<
                 boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
    Slot(ConnectionSlots& slots, std::string peer, std::string listener);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    // Its handshake has come to an export. Any thread.
    void served();

    Worker* worker = nullptr;        // who serves it
    std::weak_ptr<Session> session;  // for that worker's thread alone

 private:
    friend class ConnectionSlots;
    ConnectionSlots& slots_;
    const std::string peer_;
    const std::string listener_;
    bool counted_ = false;  // it was let in
    bool evicted_ = false;
};

// Which limit refuses a connection.
enum class ConnectionLimit : std::uint8_t { connections, of_peer, reserved, handshakes };
inline constexpr std::array connection_limits{"connections", "connections_per_peer",
                                              "connections_reserved", "handshakes"};

class ConnectionSlots {
 public:
    explicit ConnectionSlots(const config::Limits& limits);

    struct Answer {
        std::shared_ptr<Slot> slot;  // null: refused
        std::string refusal;         // why
        ConnectionLimit limit{};     // which it was then
        // A handshake that has to go for it. The oldest one goes, and not the new one: a client
        // that speaks has its export within milliseconds, so that who has waited longest will not
        // speak; and refusing new ones would let silent ones lock out everybody. It is one of the
        // peer that has most of them, so that a flood takes the places of its own.
        std::shared_ptr<Slot> evicted;
    };
    Answer enter(const Peer& peer);

 private:
    friend class Slot;
    static constexpr std::size_t max_known = 1024;

    struct PeerState {
        std::uint32_t connections = 0;
        std::uint32_t handshakes = 0;
        bool known = false;  // it was served an export; of those the last so many
        std::list<std::string>::iterator place;  // in known_, where it is known
    };

    using Peers = std::map<std::string, PeerState>;

    // Empty: it may come.
    std::string refusal(const PeerState& peer, std::uint32_t of_listener,
                        ConnectionLimit& limit) const;
    std::shared_ptr<Slot> evict();
    void served(Slot& slot);
    void leave(Slot& slot);
    void end_handshake(Slot& slot);
    void forget_if_unused(Peers::iterator peer);

    const std::uint32_t max_connections_;
    const std::uint32_t max_per_peer_;
    const std::uint32_t reserved_;
    const std::uint32_t max_handshakes_;
    std::mutex mutex_;
    std::uint32_t connections_ = 0;  // less those that are leaving
    std::uint32_t leaving_ = 0;      // evicted, and not yet gone; no more than handshakes
    std::uint32_t handshakes_ = 0;
    Peers peers_;
    std::map<std::string, std::uint32_t> listeners_;
    std::list<std::string> known_;  // the latest first
    // Those under way, the oldest first.
    boost::intrusive::list<Slot, boost::intrusive::constant_time_size<false>> waiting_;
};

}  // namespace gpunbd::server
