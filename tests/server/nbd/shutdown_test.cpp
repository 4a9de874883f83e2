// Shutdown, as a session sees it: what is in flight is answered, what is new is refused, and who
// does not go is cut.
#include <doctest/doctest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/bytes.hpp"
#include "tests/server/happy_script.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("shutdown: an idle client is sent home") {
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

// A client's flags, LIST so many times, and then GO if it is wanted.
Bytes lists(std::size_t count, bool then_go) {
    const Bytes handshake = handshake_bytes({.structured = false});
    const auto options = handshake.begin() + client_flags_size;
    Bytes said(handshake.begin(), options);
    for (std::size_t i = 0; i != count; ++i) {
        protocol::append_be(said, protocol::option_magic);
        protocol::append_be(said, static_cast<std::uint32_t>(protocol::OptionType::list));
        protocol::append_be(said, std::uint32_t{0});
    }
    if (then_go) said.insert(said.end(), options, handshake.end());
    return said;
}

// What there is for the client to read, once the server can send no more.
std::size_t unread(Rig& rig, int fd) {
    for (int before = -1;;) {
        rig.let_run();
        int bytes = 0;
        REQUIRE(::ioctl(fd, FIONREAD, &bytes) == 0);
        if (bytes == before) return static_cast<std::size_t>(bytes);
        before = bytes;
    }
}

// Exports whose names make the answer to LIST one part of `reply` bytes.
void offer_long_names(Rig& rig, std::size_t reply) {
    constexpr std::size_t around =
        2 * 24 + 20;  // two SERVER replies, of which one has no name; ACK
    auto named = std::make_shared<Export>(*rig.exports.snapshot()->front());
    named->info.name = std::string(reply - around, 'x');
    rig.exports.replace({rig.exports.snapshot()->front(), named});
}

TEST_CASE("shutdown: comes while the answer to GO waits for those before it to be read") {
    constexpr std::size_t reply = 4000;
    constexpr std::size_t greeting = 18;
    // How many answers does the socket take? That many leave no room for one more of that size, and
    // perhaps none for a small one.
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
        // With one answer too many GO has not been looked at yet, and is refused.
        const auto result = client.shake_hands(true);
        CHECK(result == (before == fits ? 0 : (1U << 31) + 7));
        client.close();
        rig.check_over();
    }
}

TEST_CASE("shutdown: comes in the middle of a LIST") {
    Rig rig;
    ExportRegistry::Exports many = *rig.exports.snapshot();
    for (int i = 0; i != 3000; ++i) {
        auto next = std::make_shared<Export>(*many.front());
        next->info.name = std::to_string(i) + std::string(4000, 'x');
        many.push_back(std::move(next));
    }
    rig.exports.replace(many);
    Client client = rig.connect({.structured = false});
    client.send_bytes(lists(1, true));
    rig.let_run();
    rig.drain();
    constexpr std::uint32_t err_shutdown = (1U << 31) + 7;
    CHECK(client.shake_hands(true) == err_shutdown);
    client.close();
    rig.check_over();
}

TEST_CASE("shutdown: a half-received write may be finished, and is answered") {
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
            // It is in the volume.
            Client after = rig.enter();
            Model model(rig.options.size);
            model.apply(ask, true);
            const Ask whole{CommandType::read, 0, 8 * page};
            model.check(whole, after.ask(whole));
            after.close();
            rig.check_clean();
        }
    }
}

TEST_CASE("shutdown: one that is never finished is cut") {
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

TEST_CASE("shutdown: a copy in flight is waited for, what is new is refused") {
    const Ask asks[] = {{CommandType::write, 0, 10 * kib},  // all of it has been received
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

TEST_CASE("shutdown: cut with a copy in flight: the session ends after the copy") {
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

TEST_CASE("shutdown: a client that does not take its answers is cut") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        Client client = rig.enter(variant.handshake());
        CHECK(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
        for (int i = 0; i != 40; ++i) client.send({CommandType::read, 0, 8 * page});
        rig.settle();
        rig.drain();
        rig.settle();
        CHECK(rig.worker.connections() == 1);
        rig.cut();
        rig.check_clean();
    }
}

TEST_CASE("shutdown: a client that takes its answers late is waited for") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        Client client = rig.enter(variant.handshake());
        CHECK(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
        for (int i = 0; i != 40; ++i) client.send({CommandType::read, 0, 8 * page});
        rig.settle();
        rig.drain();
        rig.settle();
        while (client.unanswered() != 0) {
            const auto answer = client.next();
            REQUIRE(answer.has_value());
            // All had been taken before it was told to stop, unless they are taken one by one.
            CHECK((answer->error == Error::none ||
                   (!variant.structured && answer->error == Error::eshutdown)));
        }
        client.check_end();
        rig.check_clean();
    }
}

TEST_CASE("shutdown: after DISC, a client that does not take its answers has a deadline") {
    Rig rig({.limits = {.linger = std::chrono::seconds(1)}});
    Client client = rig.enter();
    CHECK(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
    for (int i = 0; i != 40; ++i) client.send({CommandType::read, 0, 8 * page});
    client.send({CommandType::disc});
    rig.check_clean();
}

TEST_CASE("shutdown: during the handshake") {
    for (const bool structured : {false, true}) {
        Rig rig;
        Client client = rig.connect({.structured = structured});
        rig.let_run();
        rig.drain();
        constexpr std::uint32_t err_shutdown = (1U << 31) + 7;
        CHECK(client.shake_hands() == err_shutdown);
        client.close();
        rig.check_clean();
    }
}

}  // namespace
}  // namespace gpunbd::server::test
