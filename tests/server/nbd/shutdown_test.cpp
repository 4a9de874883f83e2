// Shutdown of a session: requests in flight are answered, new ones are refused, and clients that do
// not disconnect are disconnected.
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("shutdown: an idle client is disconnected") {
    for (const bool structured : {false, true}) {
        for (const Transport transport : {Transport::unix_, Transport::tcp}) {
            Rig rig;
            Client fresh = rig.enter({.structured = structured}, transport);
            Client used = rig.enter({.structured = structured}, transport);
            CHECK(used.ask({CommandType::write, 0, page}).error == Error::none);
            Client half = rig.enter({.structured = structured}, transport);
            const Bytes request = encoded({CommandType::flush}, 1);
            half.send_bytes(std::span(request).first(20));
            rig.let_run();
            rig.drain();
            fresh.check_end();
            used.check_end();
            half.check_end();
            rig.check_clean();
        }
    }
}

constexpr std::size_t client_flags_size = sizeof(std::uint32_t);

// The client flags, `count` times LIST, and optionally GO.
Bytes lists(std::size_t count, bool then_go) {
    const Bytes handshake = handshake_bytes({.structured = false});
    const auto options = handshake.begin() + client_flags_size;
    Bytes said(handshake.begin(), options);
    for (std::size_t i = 0; i != count; ++i) {
        const Bytes list = protocol::wire::option(protocol::wire::opt::list);
        said.insert(said.end(), list.begin(), list.end());
    }
    if (then_go) said.insert(said.end(), options, handshake.end());
    return said;
}

// Returns the number of bytes that the client can read when the server cannot send more.
std::size_t unread(Rig& rig, int fd) {
    for (int before = -1;;) {
        rig.let_run();
        int bytes = 0;
        REQUIRE(::ioctl(fd, FIONREAD, &bytes) == 0);
        if (bytes == before) return static_cast<std::size_t>(bytes);
        before = bytes;
    }
}

// Adds an export whose name makes the reply to LIST exactly `reply` bytes long.
void offer_long_names(Rig& rig, std::size_t reply) {
    constexpr std::size_t around =
        2 * 24 + 20;  // two SERVER replies, of which one has no name; ACK
    auto named = std::make_shared<Export>(*rig.exports.snapshot()->front());
    named->info.name = std::string(reply - around, 'x');
    rig.exports.replace({rig.exports.snapshot()->front(), named});
}

TEST_CASE("shutdown: may happen while the reply to GO waits for earlier replies to be read") {
    constexpr std::size_t reply = 4000;
    constexpr std::size_t greeting = 18;
    // The number of replies that fit into the socket. No further reply of that size fits, and
    // possibly not even a small one.
    std::size_t fits = 0;
    {
        Rig rig;
        offer_long_names(rig, reply);
        const int fd = rig.connect_socket();
        const Bytes said = lists(1000, false);
        REQUIRE(::send(fd, said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
        fits = (unread(rig, fd) - greeting) / reply;
        REQUIRE(fits < 1000);
        ::close(fd);
        rig.check_over();
    }
    for (const std::size_t before : {fits, fits + 1}) {
        Rig rig;
        offer_long_names(rig, reply);
        const int fd = rig.connect_socket();
        Client client(fd, {.structured = false});
        client.send_bytes(lists(before, true));
        CHECK(unread(rig, fd) == greeting + fits * reply);
        rig.drain();
        // With one reply more, GO has not been processed yet, and is refused.
        const auto result = client.shake_hands(true);
        CHECK(result == (before == fits ? 0 : (1U << 31) + 7));
        rig.check_over(client);
    }
}

TEST_CASE("shutdown: a partly received WRITE may be completed, and is answered") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        const Ask ask{CommandType::write, 100, 5 * page};
        const std::size_t header =
            variant.extended ? protocol::extended_request_size : protocol::request_size;
        for (const std::size_t part : {0U, 1U, 2 * page, 5 * page - 1}) {
            const std::size_t place = header + part;
            CAPTURE(place);
            Rig rig({.devices = variant.devices});
            Client client = rig.enter(variant.handshake());
            const std::uint64_t cookie = client.expect(ask);
            const Bytes bytes = encoded(ask, cookie, variant.extended);
            client.send_bytes(std::span(bytes).first(place));
            rig.settle();
            rig.drain();
            rig.let_run();
            CHECK(rig.worker.connections() == 1);
            client.send_bytes(std::span(bytes).subspan(place));
            CHECK(client.answer(cookie).error == Error::none);
            client.check_end();
            rig.check_over();
            // The data are in the volume.
            Client after = rig.enter();
            Model model(rig.options.size);
            model.apply(ask, true);
            const Ask whole{CommandType::read, 0, 8 * page};
            model.check(whole, after.ask(whole));
            rig.check_clean(after);
        }
    }
}

TEST_CASE("shutdown: a WRITE that is never completed ends with a disconnect") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        Client client = rig.enter(variant.handshake());
        const Bytes bytes = encoded({CommandType::write, 100, 5 * page}, 1, variant.extended);
        client.send_bytes(std::span(bytes).first(28 + 3 * page));
        rig.settle();
        rig.drain();
        rig.settle();
        CHECK(rig.worker.connections() == 1);
        rig.cut();
        client.check_end();
        rig.check_clean();
    }
}

TEST_CASE("shutdown: copies in flight are completed, and new requests are refused") {
    const Ask asks[] = {{CommandType::write, 0, 10 * kib},  // received completely
                        {CommandType::read, 0, 10 * kib},
                        {CommandType::write_zeroes, 5, 50}};
    for (const bool structured : {false, true}) {
        for (const Ask& ask : asks) {
            Rig rig;
            Client client = rig.enter({.structured = structured});
            CHECK(client.ask({CommandType::write, 0, page}).error == Error::none);
            rig.script.hold = true;
            const std::uint64_t cookie = client.send(ask);
            rig.let_run();
            rig.drain();
            const std::uint64_t late[] = {client.send({CommandType::read, 0, 10}),
                                          client.send({CommandType::write, 0, 3 * page}),
                                          client.send({CommandType::flush}),
                                          client.send({CommandType::read, rig.options.size, 10})};
            CHECK(client.answer(late[0]).error == Error::eshutdown);
            CHECK(client.answer(late[1]).error == Error::eshutdown);
            CHECK(client.answer(late[2]).error == Error::eshutdown);
            CHECK(client.answer(late[3]).error == Error::einval);
            CHECK(rig.worker.connections() == 1);
            rig.script.hold = false;
            CHECK(client.answer(cookie).error == Error::none);
            client.check_end();
            rig.check_clean();
        }
    }
}

TEST_CASE("shutdown: a session that is closed by force ends after its copy in flight") {
    for (const bool structured : {false, true}) {
        Rig rig;
        Client client = rig.enter({.structured = structured});
        CHECK(client.ask({CommandType::write, 0, 2 * page}).error == Error::none);
        rig.script.hold = true;
        const Ask asks[] = {{CommandType::read, 0, 2 * page},
                            {CommandType::write, 0, 10 * kib},
                            {CommandType::write_zeroes, 5, 50},
                            {CommandType::read, 2 * page, page},
                            {CommandType::write, page, 2 * page}};
        for (const Ask& ask : asks) client.send(ask);
        rig.let_run();
        rig.drain();
        rig.cut();
        rig.cut();
        while (client.next()) {
        }
        rig.let_run();
        CHECK(rig.worker.connections() == 1);
        rig.script.hold = false;
        rig.check_clean();
    }
}

// One that reads them late is waited for.
TEST_CASE("shutdown: a client that reads no replies is disconnected") {
    for (const Variant& variant : variants) {
        for (const bool reads : {false, true}) {
            CAPTURE(variant.name);
            Rig rig({.devices = variant.devices});
            Client client = rig.enter(variant.handshake());
            CHECK(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
            for (int i = 0; i != 40; ++i) client.send({CommandType::read, 0, 8 * page});
            rig.settle();
            rig.drain();
            rig.settle();
            CHECK(rig.worker.connections() == 1);
            if (!reads) rig.cut();
            while (reads && client.unanswered() != 0) {
                const auto answer = client.next();
                REQUIRE(answer.has_value());
                // All requests were received before the shutdown, or are received one by one.
                CHECK((answer->error == Error::none ||
                       (!variant.structured && answer->error == Error::eshutdown)));
            }
            if (reads) client.check_end();
            rig.check_clean();
        }
    }
}

TEST_CASE("shutdown: after DISC, a client that reads no replies has a deadline") {
    Rig rig({.limits = {.linger = std::chrono::seconds(1)}});
    Client client = rig.enter();
    CHECK(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
    for (int i = 0; i != 40; ++i) client.send({CommandType::read, 0, 8 * page});
    client.send({CommandType::disc});
    rig.check_clean();
}

TEST_CASE("shutdown: a client that sends nothing more of its handshake is disconnected") {
    for (const std::size_t part : {0U, 3U, 10U}) {
        CAPTURE(part);
        Rig rig;
        Client client = rig.connect();
        const Bytes handshake = handshake_bytes({});
        client.send_bytes(std::span(handshake).first(part));
        rig.let_run();
        rig.drain();
        CHECK_FALSE(client.shake_hands(true).has_value());
        rig.check_clean();
    }
}

}  // namespace
}  // namespace gpunbd::server::test
