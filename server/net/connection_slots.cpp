#include "server/net/connection_slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/network.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

std::string peer_key(const Peer& peer) {
    switch (peer.kind) {
        case Peer::Kind::unix_socket:
            return fmt::format("uid {}", peer.uid);
        case Peer::Kind::tcp: {
            const auto parsed = config::parse_ip(peer.address);
            if (!parsed) return peer.address;
            const config::IpAddress address = parsed->unmapped();
            return address.v6 ? config::network_of(address, 64).text() : address.text();
        }
        case Peer::Kind::vsock:
            return fmt::format("cid {}", peer.cid);
        case Peer::Kind::unknown:
            break;
    }
    return "unknown";
}

Slot::Slot(ConnectionSlots& slots, std::string peer, std::string listener)
    : slots_(slots), peer_(std::move(peer)), listener_(std::move(listener)) {}

Slot::~Slot() { slots_.leave(*this); }

bool Slot::served() { return slots_.served(*this); }

ConnectionSlots::ConnectionSlots(const config::Limits& limits)
    : max_connections_(limits.connections),
      max_per_peer_(limits.max_per_peer()),
      reserved_(limits.reserved()),
      max_handshakes_(limits.max_handshakes()) {}

ConnectionSlots::Answer ConnectionSlots::enter(const Peer& peer) {
    // Allocated first, so that a bad_alloc changes nothing.
    auto slot = std::make_shared<Slot>(*this, peer_key(peer), peer.listener);
    Answer answer;
    const Lock lock(mutex_);
    const auto state = peers_.try_emplace(slot->peer_).first;
    std::uint32_t& of_listener = listeners_[slot->listener_];
    answer.refusal = refusal(state->second, of_listener, answer.limit);
    if (!answer.refusal.empty()) {
        forget_if_unused(state);
        return answer;
    }
    if (handshakes_ >= max_handshakes_) answer.evicted = evict();
    GPUNBD_ASSERT(leaving_ <= max_handshakes_,
                  "no more evicted connections are being closed than handshakes are allowed");
    GPUNBD_ASSERT(connections_ < max_connections_, "a connection is admitted while there is room");
    slot->counted_ = true;
    ++connections_;
    ++of_listener;
    ++state->second.connections;
    ++state->second.handshakes;
    ++handshakes_;
    waiting_.push_back(*slot);
    answer.slot = std::move(slot);
    return answer;
}

std::string ConnectionSlots::refusal(const PeerState& peer, std::uint32_t of_listener,
                                     ConnectionLimit& limit) const {
    if (connections_ >= max_connections_) {
        limit = ConnectionLimit::connections;
        return fmt::format("too many connections: {} are open", connections_);
    }
    if (peer.connections >= max_per_peer_) {
        limit = ConnectionLimit::of_peer;
        return fmt::format("too many connections of this peer: {}", peer.connections);
    }
    // A connection to another listener does not make room on this one.
    if (max_connections_ - connections_ <= reserved_ && !peer.known && of_listener >= reserved_) {
        limit = ConnectionLimit::reserved;
        return fmt::format(
            "{} connections are open, and the last {} are reserved for known peers "
            "and for other listeners",
            connections_, reserved_);
    }
    if (handshakes_ >= max_handshakes_ && leaving_ >= max_handshakes_) {
        limit = ConnectionLimit::handshakes;
        return "too many handshakes: clients connect faster than old handshakes can be closed";
    }
    return {};
}

std::shared_ptr<Slot> ConnectionSlots::evict() {
    Slot* oldest = nullptr;
    std::uint32_t most = 0;
    for (Slot& each : waiting_) {
        const std::uint32_t handshakes = peers_.find(each.peer_)->second.handshakes;
        if (handshakes <= most) continue;
        most = handshakes;
        oldest = &each;
    }
    if (oldest == nullptr) return nullptr;
    end_handshake(*oldest);
    // It counts as closed and does not keep others out.
    GPUNBD_ASSERT(!oldest->evicted_ && connections_ != 0, "a connection is evicted once");
    oldest->evicted_ = true;
    --connections_;
    ++leaving_;
    return oldest->weak_from_this().lock();  // null: it is being destroyed
}

void ConnectionSlots::end_handshake(Slot& slot) {
    if (!slot.is_linked()) return;
    slot.unlink();
    GPUNBD_ASSERT(handshakes_ != 0 && peers_.contains(slot.peer_) &&
                      peers_.find(slot.peer_)->second.handshakes != 0,
                  "a handshake that waits is counted, also for its peer");
    --handshakes_;
    --peers_.find(slot.peer_)->second.handshakes;
}

bool ConnectionSlots::served(Slot& slot) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(slot.counted_, "only an admitted connection is served");
    if (slot.evicted_) return false;
    end_handshake(slot);
    PeerState& peer = peers_.find(slot.peer_)->second;
    if (peer.known) {
        known_.splice(known_.begin(), known_, peer.place);
        return true;
    }
    known_.push_front(slot.peer_);
    peer.known = true;
    peer.place = known_.begin();
    if (known_.size() <= max_known) return true;
    const auto last = peers_.find(known_.back());
    known_.pop_back();
    last->second.known = false;
    forget_if_unused(last);
    return true;
}

void ConnectionSlots::leave(Slot& slot) {
    const Lock lock(mutex_);
    if (!slot.counted_) return;
    const auto peer = peers_.find(slot.peer_);
    end_handshake(slot);
    GPUNBD_ASSERT((slot.evicted_ ? leaving_ : connections_) != 0,
                  "a connection that leaves is counted");
    --(slot.evicted_ ? leaving_ : connections_);
    const auto listener = listeners_.find(slot.listener_);
    GPUNBD_ASSERT(listener != listeners_.end() && listener->second != 0,
                  "a listener is remembered while it has connections");
    if (--listener->second == 0) listeners_.erase(listener);
    GPUNBD_ASSERT(peer->second.connections != 0, "a peer is remembered while it has connections");
    --peer->second.connections;
    forget_if_unused(peer);
}

void ConnectionSlots::forget_if_unused(Peers::iterator peer) {
    GPUNBD_ASSERT(peer->second.handshakes <= peer->second.connections,
                  "each handshake of a peer is one of its connections");
    if (peer->second.connections == 0 && !peer->second.known) peers_.erase(peer);
}

}  // namespace gpunbd::server
