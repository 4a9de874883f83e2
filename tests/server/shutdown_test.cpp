// Shutdown, as a session sees it: what is in flight is answered, what is new is refused, and who
// does not go is cut.
#include <doctest/doctest.h>

#include "happy_script.hpp"
#include "protocol/bytes.hpp"

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

TEST_CASE("shutdown: comes while the answers to options are still being sent") {
    Rig rig;
    // More than a socket takes: the answer to GO waits behind it.
    ExportRegistry::Exports many = *rig.exports.snapshot();
    for (int i = 0; i != 3000; ++i) {
        auto next = std::make_shared<Export>(*many.front());
        next->info.name = std::to_string(i) + std::string(4000, 'x');
        many.push_back(std::move(next));
    }
    rig.exports.replace(many);
    Client client = rig.connect({.structured = false});
    Bytes said = handshake_bytes({.structured = false});
    Bytes list;
    protocol::append_be(list, protocol::option_magic);
    protocol::append_be(list, static_cast<std::uint32_t>(protocol::OptionType::list));
    protocol::append_be(list, std::uint32_t{0});
    said.insert(said.begin() + sizeof(std::uint32_t), list.begin(), list.end());
    client.send_bytes(said);
    rig.let_run();
    rig.drain();
    CHECK(client.shake_hands(true) == 0);
    client.check_end();
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
    Rig rig({.limits = {.farewell = std::chrono::seconds(1)}});
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
