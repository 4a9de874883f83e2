// Many requests over little staging memory, and clients that do not read replies: no client
// starves, and memory use stays bounded.
#include "tests/sanitized.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/storage/random.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using gpunbd::test::is_sanitized;
using storage::test::Random;

// More than a socket buffers without being read.
constexpr std::size_t buffers = 8 * mib;

RigOptions tiny(std::uint32_t pinned, std::uint32_t slots = 2) {
    return {.page_size = 64 * kib,
            .size = 4 * mib,
            .channels = {.chunk_size = 16 * kib, .slots = slots, .pinned = pinned}};
}

TEST_CASE("limits: many large requests complete with little staging memory") {
    for (const std::uint32_t pinned : {16 * kib, 32 * kib, 64 * kib}) {
        for (const std::uint32_t slots : {1U, 2U, 8U}) {
            for (const bool structured : {false, true}) {
                if (is_sanitized && structured != (slots == 2U)) continue;
                CAPTURE(pinned);
                CAPTURE(slots);
                Rig rig(tiny(pinned, slots));
                rig.script.polls_per_copy = 2;
                std::vector<Client> clients;
                for (int i = 0; i != 3; ++i) {
                    clients.push_back(rig.enter({.structured = structured}));
                }
                for (Client& client : clients) client.wait_together_with(clients);
                REQUIRE(clients[0].ask({CommandType::write, 0, 4 * mib}).error == Error::none);
                Random random(pinned + slots);
                for (int i = 0; i != 150; ++i) {
                    Client& client = clients[random.below(3)];
                    const std::uint32_t length = 1 + random.below(512 * kib);
                    const std::uint64_t offset =
                        random.below(static_cast<std::uint32_t>(4 * mib - length));
                    const auto seed = static_cast<std::uint32_t>(i);
                    if (random.one_in(2)) {
                        client.send({CommandType::write, offset, length, 0, seed});
                    } else {
                        client.send({CommandType::read, offset, length});
                    }
                }
                for (Client& client : clients) client.receive_all();
                rig.check_clean(clients);
            }
        }
    }
}

// A READ that is answered in one piece has the stream to itself. It must not wait for staging
// memory that is held by READs that wait for the stream.
TEST_CASE("limits: READs in one piece and in chunks complete over holes and mixed devices") {
    enum class Form { simple, all_df, some_df };
    for (const Form form : {Form::simple, Form::all_df, Form::some_df}) {
        for (const std::string_view devices : {"s", "hs", "shs"}) {
            if (is_sanitized && devices == "hs") continue;
            for (const std::uint32_t pinned : {16 * kib, 64 * kib, 256 * kib}) {
                CAPTURE(static_cast<int>(form));
                CAPTURE(devices);
                CAPTURE(pinned);
                RigOptions options = tiny(pinned);
                options.devices = devices;
                Rig rig(options);
                Client client = rig.enter({.structured = form != Form::simple});
                Model model(rig.options.size);
                // At two places, more consecutive holes than chunks are issued at once.
                for (const Ask& ask : {Ask{CommandType::write, 1 * mib, 1 * mib, 0, 1},
                                       Ask{CommandType::write, 3 * mib, 1 * mib, 0, 2}}) {
                    model.ask(client, ask);
                }
                std::vector<std::pair<Ask, std::uint64_t>> asks;
                const auto send = [&](std::uint64_t offset, std::uint32_t length) {
                    const bool df =
                        form == Form::all_df || (form == Form::some_df && asks.size() % 5 == 4);
                    const Ask ask{CommandType::read, offset, length,
                                  df ? protocol::command_flag::df : std::uint16_t{0}};
                    asks.emplace_back(ask, client.send(ask));
                };
                Random random(pinned);
                for (int round = 0; round != 3; ++round) {
                    send(0, 2 * mib);
                    for (int i = 0; i != 40; ++i) {
                        send(3 * mib + random.below(900 * kib), 1 + random.below(50 * kib));
                    }
                    send(1 * mib + 512 * kib, 2 * mib);
                    send(random.below(2 * mib), 1 * mib + random.below(1 * mib));
                }
                for (const auto& [ask, cookie] : asks) {
                    const Answer answer = client.answer(cookie);
                    REQUIRE(answer.error == Error::none);
                    model.check(ask, answer);
                }
                rig.check_clean(client);
            }
        }
    }
}

TEST_CASE("limits: a client that sends no payload does not block payload of others") {
    Rig rig(tiny(64 * kib));
    Client slow = rig.enter();
    Client quick = rig.enter();
    const Ask ask{CommandType::write, 0, 2 * mib};
    const std::uint64_t cookie = slow.expect(ask);
    const Bytes bytes = encoded(ask, cookie);
    slow.send_bytes(std::span(bytes).first(100 * kib));
    rig.settle();
    for (int i = 0; i != 5; ++i) {
        CHECK(quick.ask({CommandType::write, 0, 4 * mib}).error == Error::none);
    }
    slow.send_bytes(std::span(bytes).subspan(100 * kib));
    CHECK(slow.answer(cookie).error == Error::none);
    rig.check_clean(slow, quick);
}

// One client for each guaranteed first piece of staging memory.
TEST_CASE("limits: only stalled clients that hold all staging memory are disconnected") {
    for (const CommandType type : {CommandType::write, CommandType::read}) {
        RigOptions options = tiny(64 * kib);
        options.stall_limit = std::chrono::milliseconds(100);
        Rig rig(options);
        Client quick = rig.enter();
        REQUIRE(quick.ask({CommandType::write, 0, 4 * mib}).error == Error::none);
        std::vector<Client> stalled;
        for (int i = 0; i != 4; ++i) {
            Client& slow = stalled.emplace_back(rig.enter());
            const Ask ask{type, 0, type == CommandType::write ? 1 * mib : 2 * mib};
            const auto bytes = encoded(ask, slow.expect(ask));
            slow.send_bytes(std::span(bytes).first(std::min<std::size_t>(bytes.size(), 1000)));
            if (type == CommandType::read) {
                // The replies fill the socket and then staging memory.
                for (int more = 0; more != 8; ++more) slow.send(ask);
            }
            rig.settle();
        }
        Client idle = rig.enter();
        for (int i = 0; i != 3; ++i) {
            CHECK(quick.ask({type, 0, 1 * mib}).error == Error::none);
        }
        CHECK(idle.ask({CommandType::read, 0, 1 * mib}).error == Error::none);
        rig.check_clean(quick, stalled, idle);
    }
}

TEST_CASE("limits: a stalled client stays connected while no other client waits") {
    RigOptions options = tiny(64 * kib);
    options.stall_limit = std::chrono::milliseconds(20);
    Rig rig(options);
    Client slow = rig.enter({.structured = false});
    Client other = rig.enter();
    REQUIRE(slow.ask({CommandType::write, 0, 4 * mib}).error == Error::none);
    for (int i = 0; i != 8; ++i) slow.send({CommandType::read, 0, 2 * mib});
    rig.settle();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(other.ask({CommandType::read, 0, 16 * kib}).error == Error::none);
    slow.receive_all();
    rig.check_clean(slow, other);
}

// The delayed request has been received in full, and no further data would wake the session.
TEST_CASE("limits: a request beyond the limit of its connection executes after earlier ones") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        for (const std::uint64_t max : {std::uint64_t{1}, std::uint64_t{3 * page}}) {
            for (const bool of_worker : {false, true}) {
                RigOptions options{.devices = variant.devices};
                (of_worker ? options.in_flight : options.limits.in_flight) = max;
                Rig rig(options);
                Client client = rig.enter(variant.handshake());
                REQUIRE(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
                for (std::uint32_t count = 2; count != 6; ++count) {
                    CAPTURE(count);
                    client.flood({CommandType::read, 0, 2 * page}, count);
                    client.receive_all();
                }
                rig.check_clean(client);
            }
        }
    }
}

// The last bytes of a payload are in the receive buffer, and no staging memory is free.
TEST_CASE("limits: the end of a payload waits for staging memory") {
    for (std::uint32_t left = 1; left <= 40; left += left < 26 ? 5 : 1) {
        CAPTURE(left);
        Rig rig(tiny(16 * kib));
        Client client = rig.enter();
        REQUIRE(client.ask({CommandType::write, 0, 4 * mib}).error == Error::none);
        rig.script.hold = true;
        client.send_bytes(client.expect_all(
            {{CommandType::write, 0, 16 * kib}, {CommandType::write, 64 * kib, left}}));
        rig.let_run();
        CHECK(client.unanswered() == 2);
        rig.script.hold = false;
        client.receive_all();
        rig.check_clean(client);
    }
}

TEST_CASE("limits: a client that sends requests but reads no replies is not read any more") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        const Ask asks[] = {
            {CommandType::flush, 0, 0},
            {CommandType::read, 1 * mib, 1},  // refused, because the range is beyond the end
            {CommandType::read, 0, 0},
            {CommandType::write, 0, 1},
            {CommandType::trim, 5 * page, 10},
            {CommandType::read, page, 1},
            {CommandType::block_status, 0, 8 * page}};
        for (const Ask& ask : asks) {
            if (ask.type == CommandType::block_status && !variant.structured) continue;
            if (variant.devices != "s") continue;
            if (is_sanitized && !variant.extended && ask.type != CommandType::flush) continue;
            Rig rig({.devices = variant.devices, .limits = {.in_flight = 256 * kib}});
            Client client = rig.enter(variant.handshake());
            REQUIRE(client.ask({CommandType::write, 0, 4 * page}).error == Error::none);
            constexpr std::size_t batch = 1000;
            std::size_t sent = 0;
            for (bool refused = false; !refused && sent < 2 * buffers;) {
                const Bytes many = client.expect_all(std::vector<Ask>(batch, ask));
                for (std::span<const std::byte> rest = many; !rest.empty();) {
                    std::size_t taken = client.offer(rest);
                    sent += taken;
                    rest = rest.subspan(taken);
                    if (taken != 0) continue;
                    rig.settle();
                    taken = client.offer(rest);
                    sent += taken;
                    rest = rest.subspan(taken);
                    if (taken != 0) continue;
                    // The server has stopped reading. Send the rest while receiving replies.
                    refused = true;
                    client.send_bytes(rest);
                    rest = {};
                }
            }
            CHECK(sent < 2 * buffers);
            client.receive_all({});
            CHECK(client.ask({CommandType::read, 0, page}).error == Error::none);
            rig.check_clean(client);
        }
    }
}

TEST_CASE("limits: bytes in flight are limited") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        if (variant.devices != "s") continue;
        RigOptions options = tiny(1 * mib);
        options.limits.in_flight = 1 * mib;
        Rig rig(options);
        Client client = rig.enter(variant.handshake());
        REQUIRE(client.ask({CommandType::write, 0, 4 * mib}).error == Error::none);
        const std::uint64_t before = rig.script.copies_seen;
        constexpr std::uint32_t length = 16 * kib;  // one copy
        client.flood({CommandType::read, 0, length}, 2000);
        rig.settle();
        CHECK((rig.script.copies_seen - before) * length < buffers);
        client.receive_all();
        CHECK(rig.script.copies_seen - before == 2000);
        rig.check_clean(client);
    }
}

TEST_CASE("limits: connections share the worker's limit, and each may have one request") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices, .in_flight = 64 * kib});
        Client slow = rig.enter(variant.handshake());
        REQUIRE(slow.ask({CommandType::write, 0, 8 * page}).error == Error::none);
        for (int i = 0; i != 40; ++i) slow.send({CommandType::read, 0, 8 * page});
        rig.settle();
        Client quick = rig.enter(variant.handshake());
        Client other = rig.enter(variant.handshake());
        for (int i = 0; i != 20; ++i) {
            quick.send({CommandType::read, 0, 2 * page});
            other.send({CommandType::write, 0, 2 * page});
        }
        quick.receive_all();
        other.receive_all();
        slow.receive_all();
        rig.check_clean(slow, quick, other);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
