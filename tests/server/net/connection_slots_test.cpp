// Connection slots: no peer can occupy all of them, and every handshake ends.
#include "server/net/connection_slots.hpp"

#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Slots = std::vector<std::shared_ptr<Slot>>;

Peer peer_at(const std::string& address, const std::string& listener = "one") {
    Peer peer;
    peer.kind = Peer::Kind::tcp;
    peer.address = address;
    peer.listener = listener;
    return peer;
}

Peer user(uid_t uid) {
    Peer peer;
    peer.kind = Peer::Kind::unix_socket;
    peer.uid = uid;
    return peer;
}

config::Limits limits(std::uint32_t connections, std::uint32_t per_peer, std::uint32_t reserved,
                      std::uint32_t handshakes) {
    config::Limits out;
    out.connections = connections;
    out.connections_per_peer = per_peer;
    out.connections_reserved = reserved;
    out.handshakes = handshakes;
    return out;
}

// Opens connections of `peer` until one is refused. Each is served an export.
Slots take_all(ConnectionSlots& slots, const Peer& peer) {
    Slots taken;
    for (;;) {
        auto answer = slots.enter(peer);
        CHECK((answer.slot == nullptr) == !answer.refusal.empty());
        if (!answer.slot) return taken;
        answer.slot->served();
        taken.push_back(std::move(answer.slot));
    }
}

TEST_CASE("slots: addresses of one user or network are one peer") {
    CHECK(peer_key(peer_at("10.0.0.1")) == peer_key(peer_at("10.0.0.1", "another")));
    CHECK(peer_key(peer_at("10.0.0.1")) != peer_key(peer_at("10.0.0.2")));
    CHECK(peer_key(peer_at("2001:db8:0:1::1")) == peer_key(peer_at("2001:db8:0:1:ffff::2")));
    CHECK(peer_key(peer_at("2001:db8:0:1::1")) != peer_key(peer_at("2001:db8:0:2::1")));
    // On a dual-stack socket, all IPv4 addresses would be in one IPv6 network.
    CHECK(peer_key(peer_at("::ffff:10.0.0.1")) == peer_key(peer_at("10.0.0.1")));
    CHECK(peer_key(peer_at("::ffff:10.0.0.1")) != peer_key(peer_at("::ffff:10.0.0.2")));
    CHECK(peer_key(user(0)) == peer_key(user(0)));
    CHECK(peer_key(user(0)) != peer_key(user(1)));
    CHECK(peer_key(Peer()) == peer_key(Peer()));
}

TEST_CASE("slots: the default limits are derived from the number of connections") {
    config::Limits some;
    CHECK(some.max_per_peer() == 2048);
    CHECK(some.reserved() == 256);
    CHECK(some.max_handshakes() == 256);
    some.connections = 1;
    CHECK(some.max_per_peer() == 1);
    CHECK(some.reserved() == 0);
    CHECK(some.max_handshakes() == 16);
    ConnectionSlots slots(some);
    CHECK(take_all(slots, peer_at("10.0.0.1")).size() == 1);
}

TEST_CASE("slots: a peer is limited to its share, and closing a connection frees a slot") {
    ConnectionSlots slots(limits(10, 6, 0, 10));
    Slots first = take_all(slots, peer_at("10.0.0.1"));
    CHECK(first.size() == 6);
    Slots second = take_all(slots, peer_at("10.0.0.2"));
    CHECK(second.size() == 4);
    CHECK(slots.enter(peer_at("10.0.0.3")).refusal == "too many connections: 10 are open");
    first.pop_back();
    CHECK(take_all(slots, peer_at("10.0.0.3")).size() == 1);
    first.clear();
    second.clear();
    CHECK(take_all(slots, peer_at("10.0.0.1")).size() == 6);
}

TEST_CASE("slots: reserved slots are for known peers and other listeners") {
    ConnectionSlots slots(limits(20, 8, 4, 20));
    Slots known = take_all(slots, peer_at("10.0.0.9"));
    known.clear();
    Slots crowd;
    for (int i = 0; i != 100; ++i) {
        auto answer = slots.enter(peer_at("10.0.1." + std::to_string(i)));
        if (answer.slot) crowd.push_back(std::move(answer.slot));
    }
    CHECK(crowd.size() == 16);
    CHECK(slots.enter(peer_at("10.0.2.1")).refusal ==
          "16 connections are open, and the last 4 are reserved for known peers and "
          "for other listeners");
    Slots again;
    again.push_back(slots.enter(peer_at("10.0.0.9")).slot);
    CHECK(again.back() != nullptr);
    Slots other = take_all(slots, peer_at("10.0.2.1", "another"));
    CHECK(other.size() == 3);
}

TEST_CASE("slots: evicts the oldest handshake of the peer with the most handshakes") {
    ConnectionSlots slots(limits(100, 50, 0, 4));
    const auto patient = slots.enter(peer_at("10.0.0.1"));
    Slots flood;
    for (int i = 0; i != 3; ++i) flood.push_back(slots.enter(peer_at("10.0.0.2")).slot);
    auto next = slots.enter(peer_at("10.0.0.3"));
    CHECK(next.evicted == flood[0]);
    next = slots.enter(peer_at("10.0.0.2"));
    CHECK(next.evicted == flood[1]);
    // A served connection is no handshake any more, and an evicted one has freed its place.
    patient.slot->served();
    next = slots.enter(peer_at("10.0.0.4"));
    CHECK(next.evicted == nullptr);
}

TEST_CASE("slots: an evicted handshake frees its slot, and evictions in progress are limited") {
    ConnectionSlots slots(limits(3, 10, 0, 2));
    Slots held;
    for (int i = 0; i != 4; ++i) {
        held.push_back(slots.enter(peer_at("10.0.0.2")).slot);
        CHECK(held.back() != nullptr);
    }
    CHECK(slots.enter(peer_at("10.0.0.3")).refusal ==
          "too many handshakes: clients connect faster than old handshakes can be closed");
    held[0].reset();
    const auto next = slots.enter(peer_at("10.0.0.3"));
    CHECK(next.evicted == held[2]);
}

TEST_CASE("slots: the number of known peers that are remembered is bounded") {
    ConnectionSlots slots(limits(2000, 2000, 1999, 16));
    Slots held;
    const auto known = [&](int n) {
        const auto peer =
            peer_at("10.1." + std::to_string(n / 256) + "." + std::to_string(n % 256));
        const auto answer = slots.enter(peer);
        if (answer.slot) answer.slot->served();
        return answer.slot != nullptr;
    };
    for (int n = 0; n != 1100; ++n) CHECK(known(n));
    // Fill the slots, so that only known peers are accepted.
    while (held.size() != 1999) {
        auto answer = slots.enter(peer_at("10.1.4.75"));  // 1099
        REQUIRE(answer.slot);
        answer.slot->served();
        held.push_back(std::move(answer.slot));
    }
    CHECK_FALSE(known(0));
    CHECK(known(1098));
}

// Connects a client through `slots`. Returns it with the evicted slot, if any.
std::pair<Client, std::shared_ptr<Slot>> silent(Rig& rig, ConnectionSlots& slots) {
    const auto [own, server] = unix_pair();
    const Peer peer = peer_of(server, "a test");
    auto answer = slots.enter(peer);
    REQUIRE(answer.slot);
    if (answer.evicted) answer.evicted->worker->evict(answer.evicted);
    rig.worker.serve(OwnedFd(server), peer, rig.exports, rig.options.limits,
                     std::move(answer.slot));
    return {Client(own, {}), answer.evicted};
}

TEST_CASE("slots: a worker ends an evicted handshake, and ended sessions free their slots") {
    ConnectionSlots slots(limits(100, 100, 0, 2));
    Rig rig;
    {
        auto [first, none] = silent(rig, slots);
        CHECK(none == nullptr);
        auto [served, none_either] = silent(rig, slots);
        CHECK(none_either == nullptr);
        served.enter();
        auto [second, still_none] = silent(rig, slots);
        CHECK(still_none == nullptr);
        auto [third, gone] = silent(rig, slots);
        CHECK(gone != nullptr);
        gone.reset();
        CHECK_FALSE(first.shake_hands(true).has_value());
        second.enter();
        third.enter();
        CHECK(served.ask({CommandType::write, 0, 10}).error == Error::none);
    }
    rig.check_over();
    CHECK(take_all(slots, peer_at("10.0.0.1")).size() == 100);
}

TEST_CASE("slots: an evicted handshake gets no export, even before the worker ends it") {
    ConnectionSlots slots(limits(100, 100, 0, 1));
    Rig rig;
    auto [client, none] = silent(rig, slots);
    CHECK(none == nullptr);
    CHECK(slots.enter(peer_at("10.0.0.1")).evicted != nullptr);
    CHECK_FALSE(client.shake_hands().has_value());
    rig.check_over();
}

TEST_CASE("session: an idle connection is closed after limits.idle") {
    Rig rig({.limits = {.idle = std::chrono::milliseconds(40)}});
    rig.script.hold = true;
    Client waits = rig.enter_at_once({{CommandType::write, 0, 10000}});
    Client half = rig.enter();
    const Bytes request = encoded({CommandType::flush}, 1);
    half.send_bytes(std::span(request).first(20));
    rig.enter().check_end();
    half.check_end();
    // A connection with a pending reply is not idle.
    rig.enter().check_end();
    rig.script.hold = false;
    const auto answer = waits.next();
    REQUIRE(answer.has_value());
    CHECK(answer->error == Error::none);
    waits.check_end();
    rig.check_over();
}

}  // namespace
}  // namespace gpunbd::server::test
