// Runs the happy script, and replays it with each step failing in turn. Each time the session ends
// and leaks no pages or buffers.
#include "tests/sanitized.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using storage::FaultScript;

// With a sanitizer, the variants share the steps that fail.
constexpr std::size_t failing_stride = gpunbd::test::is_sanitized ? 3 : 1;
std::size_t first_failing(const Variant& variant) {
    return static_cast<std::size_t>(&variant - variants) % failing_stride;
}

struct Outcome {
    std::vector<Error> errors;
    std::vector<bool> dropped;          // per step: whether the connection was dropped
    std::vector<std::uint64_t> copies;  // before each step, and after the last
};

// Sends one request after another. Reconnects if the connection is dropped.
Outcome play(Rig& rig, const Variant& variant) {
    const std::vector<Ask> script = happy_script(variant);
    Model model(rig.options.size);
    Outcome outcome;
    outcome.copies.push_back(rig.script.copies_seen);
    std::optional<Client> client;
    for (const Ask& ask : script) {
        CAPTURE(&ask - script.data());
        if (!client) client.emplace(rig.enter(variant.handshake()));
        const auto answer = client->answer_or_end(client->send(ask));
        outcome.dropped.push_back(!answer.has_value());
        outcome.errors.push_back(answer ? answer->error : Error::none);
        model.apply(ask, answer && answer->error == Error::none);
        if (!answer) {
            client.reset();
        } else if (ask.type == CommandType::read && answer->error == Error::none) {
            model.check(ask, *answer);
        }
        rig.settle();
        outcome.copies.push_back(rig.script.copies_seen);
    }
    if (client) {
        client->send({CommandType::disc});
        CHECK_FALSE(client->next().has_value());
        CHECK(client->unanswered() == 1);
    }
    return outcome;
}

TEST_CASE("session: the happy script succeeds") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        for (const std::uint32_t polls : {1U, 3U}) {
            for (const bool trace : {false, true}) {
                Rig rig({.devices = variant.devices, .trace = trace});
                rig.script.polls_per_copy = polls;
                const Outcome outcome = play(rig, variant);
                for (const Error error : outcome.errors) CHECK(error == Error::none);
                for (const bool dropped : outcome.dropped) CHECK_FALSE(dropped);
                rig.check_clean();
            }
        }
    }
}

// Copy `k` fails, or with it the device.
void check_failing_copies(bool dies) {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig first({.devices = variant.devices});
        const Outcome whole = play(first, variant);
        const std::vector<Ask> script = happy_script(variant);
        for (std::uint64_t k = first_failing(variant); k < whole.copies.back();
             k += failing_stride) {
            CAPTURE(k);
            Rig rig({.devices = variant.devices});
            (dies ? rig.script.copies_until_dead : rig.script.copies_until_failure) =
                static_cast<std::int64_t>(k);
            if (!dies) rig.script.polls_per_copy = static_cast<std::uint32_t>(1 + k % 3);
            const Outcome outcome = play(rig, variant);
            for (std::size_t i = 0; i != script.size(); ++i) {
                CAPTURE(i);
                const bool hit = whole.copies[i] <= k && k < whole.copies[i + 1];
                const bool later = dies && k < whole.copies[i];
                // After its header has been sent, a failed READ can only drop the connection.
                const bool may_drop = in_one(script[i], variant.structured) &&
                                      (dies || (hit && k != whole.copies[i]));
                if (outcome.dropped[i]) {
                    REQUIRE(may_drop);
                } else if (later) {
                    REQUIRE((outcome.errors[i] == Error::none || outcome.errors[i] == Error::eio));
                } else {
                    REQUIRE(outcome.errors[i] == (hit ? Error::eio : Error::none));
                }
            }
            dies ? rig.check_over() : rig.check_clean();
        }
    }
}

TEST_CASE("session: a failed copy fails only its own request") { check_failing_copies(false); }

TEST_CASE("session: a device that fails at any copy does not hang the session") {
    check_failing_copies(true);
}

TEST_CASE("session: a failed allocation of a page keeps the connection") {
    for (const bool structured : {false, true}) {
        const Variant variant{"", "ssssssss", structured};
        const std::vector<Ask> script = happy_script(structured);
        bool failed = true;
        for (std::int64_t k = 0; failed; ++k) {
            CAPTURE(k);
            REQUIRE(k < 10);
            Rig rig({.devices = variant.devices});
            rig.script.allocations_until_failure = k;
            const Outcome outcome = play(rig, variant);
            failed = false;
            for (std::size_t i = 0; i != script.size(); ++i) {
                CAPTURE(i);
                REQUIRE_FALSE(outcome.dropped[i]);
                const bool maps = script[i].type == CommandType::write ||
                                  (script[i].flags & protocol::command_flag::no_hole) != 0;
                const Error error = outcome.errors[i];
                REQUIRE((error == Error::none || (maps && error == Error::enospc)));
                failed = failed || error != Error::none;
            }
            if (k == 0) CHECK(outcome.errors[0] == Error::enospc);
            rig.check_clean();
        }
    }
}

TEST_CASE("session: a device dies with many requests in flight: each is answered") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        if (variant.devices == "h") continue;
        for (std::int64_t k = 0; k < 120; k += 1 + k / 10) {
            CAPTURE(k);
            Rig rig({.devices = variant.devices});
            Client client = rig.enter(variant.handshake());
            Client other = rig.enter(variant.handshake());
            for (Client* each : {&client, &other}) {
                CHECK(each->ask({CommandType::write, 0, 8 * page}).error == Error::none);
            }
            rig.script.copies_until_dead = k;
            bool has_in_one = false;
            for (int round = 0; round != 2; ++round) {
                for (const Ask& ask : happy_script(variant)) {
                    client.send(ask);
                    other.send(ask);
                    has_in_one = has_in_one || in_one(ask, variant.structured);
                }
            }
            for (Client* each : {&client, &other}) {
                std::optional<Answer> answer;
                do {
                    answer = each->next();
                    if (answer)
                        CHECK((answer->error == Error::none || answer->error == Error::eio));
                } while (answer && each->unanswered() != 0);
                if (!answer) CHECK(has_in_one);
            }
            rig.check_over(client, other);
        }
    }
}

// All bytes that a client sends in a connection, and the boundaries of their parts.
struct Recording {
    Bytes bytes;
    std::vector<std::size_t> ends;  // of each request including its payload
    std::vector<std::size_t> places;
};

Recording record(const Variant& variant) {
    Recording recording;
    recording.bytes = handshake_bytes(variant.handshake());
    for (std::size_t i = 0; i <= recording.bytes.size(); ++i) recording.places.push_back(i);
    std::uint64_t cookie = 0x1122334400000000;
    for (const Ask& ask : happy_script(variant)) {
        const std::size_t begin = recording.bytes.size();
        const Bytes request = encoded(ask, ++cookie, variant.extended);
        recording.bytes.insert(recording.bytes.end(), request.begin(), request.end());
        recording.ends.push_back(recording.bytes.size());
        for (const std::size_t within :
             {std::size_t{1}, std::size_t{14}, std::size_t{27}, std::size_t{28}, std::size_t{29},
              std::size_t{31}, std::size_t{32}, std::size_t{33}, request.size() / 2,
              request.size() - 1, request.size()}) {
            if (within <= request.size()) recording.places.push_back(begin + within);
        }
    }
    std::sort(recording.places.begin(), recording.places.end());
    recording.places.erase(std::unique(recording.places.begin(), recording.places.end()),
                           recording.places.end());
    return recording;
}

TEST_CASE("session: a client may disconnect after any byte of the handshake or of a request") {
    enum class How { closes, closes_late, resets };
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        const Recording recording = record(variant);
        Rig rig({.devices = variant.devices});
        rig.script.polls_per_copy = 2;
        for (const How how : {How::closes, How::closes_late, How::resets}) {
            for (std::size_t i = first_failing(variant); i < recording.places.size();
                 i += failing_stride) {
                const std::size_t place = recording.places[i];
                CAPTURE(place);
                Client client = rig.connect(variant.handshake(),
                                            how == How::resets ? Transport::tcp : Transport::unix_);
                client.send_bytes(std::span(recording.bytes).first(place));
                if (how == How::closes_late) rig.settle();
                if (how == How::resets && place % 2 == 0) rig.let_run();
                how == How::resets ? client.reset() : client.close();
                rig.check_over();
            }
            rig.check_clean();
        }
    }
}

TEST_CASE("session: a client that has closed its sending side receives all replies") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        const Recording recording = record(variant);
        const std::vector<Ask> script = happy_script(variant);
        Rig rig({.devices = variant.devices});
        rig.script.polls_per_copy = 2;
        for (const Transport transport : {Transport::unix_, Transport::tcp}) {
            for (std::size_t i = first_failing(variant); i < recording.places.size();
                 i += failing_stride) {
                const std::size_t place = recording.places[i];
                CAPTURE(place);
                Client client = rig.connect(variant.handshake(), transport);
                std::size_t whole = 0;
                while (whole != script.size() && recording.ends[whole] <= place) {
                    client.expect(script[whole++]);
                }
                client.send_bytes(std::span(recording.bytes).first(place));
                client.shut_down_sending();
                const auto result = client.shake_hands(true);
                CHECK((result.has_value() || whole == 0));
                while (const auto answer = client.next()) CHECK(answer->error == Error::none);
                CHECK(client.unanswered() == 0);
                CHECK_FALSE(client.ended_within_an_answer());
                rig.check_over();
            }
        }
        rig.check_clean();
    }
}

TEST_CASE("session: DISC waits for requests in flight") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        rig.script.polls_per_copy = 3;
        Client client = rig.enter(variant.handshake());
        for (const Ask& ask : happy_script(variant)) client.send(ask);
        const Bytes disc = encoded({CommandType::disc}, 0, variant.extended);
        client.send_bytes(disc);
        // The server ignores data after DISC.
        client.send_bytes(Bytes(100));
        while (const auto answer = client.next()) CHECK(answer->error == Error::none);
        CHECK(client.unanswered() == 0);
        rig.check_clean(client);
    }
}

TEST_CASE("session: buffers of copies in flight stay valid after the client disconnects") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        if (variant.devices == "h") continue;
        const std::vector<Ask> script = happy_script(variant);
        for (std::size_t i = 0; i != script.size(); ++i) {
            for (const bool after_disc : {false, true}) {
                CAPTURE(i);
                Rig rig({.devices = variant.devices});
                {
                    Client client = rig.enter(variant.handshake());
                    for (std::size_t before = 0; before != i; ++before) client.ask(script[before]);
                    rig.script.hold = true;
                    client.send(script[i]);
                    client.send(script[i]);
                    if (after_disc) client.send({CommandType::disc});
                    rig.let_run();
                }
                rig.let_run();
                if (rig.busy()) {
                    CHECK(rig.worker.connections() == 1);
                } else {
                    rig.wait_until_left();  // a request may wait for a page
                }
                rig.script.hold = false;
                rig.check_clean();
            }
        }
    }
}

TEST_CASE("session: requests may arrive byte by byte") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        Client client = rig.connect(variant.handshake());
        for (const std::byte byte : handshake_bytes(variant.handshake())) {
            client.send_bytes({&byte, 1});
            rig.on_worker([] {});
        }
        REQUIRE(client.shake_hands(true) == 0);
        Model model(rig.options.size);
        std::vector<Ask> asks{{CommandType::write, page - 30, 60},
                              {CommandType::read, 0, 2 * page}};
        if (variant.extended) {
            asks.push_back(
                {CommandType::block_status, 0, 2 * page, protocol::command_flag::payload_len});
        }
        for (const Ask& ask : asks) {
            const std::uint64_t cookie = client.expect(ask);
            for (const std::byte byte : encoded(ask, cookie, variant.extended)) {
                client.send_bytes({&byte, 1});
                rig.on_worker([] {});
            }
            const Answer answer = client.answer(cookie);
            CHECK(answer.error == Error::none);
            model.apply(ask, true);
            if (ask.type == CommandType::read) model.check(ask, answer);
        }
        rig.check_clean(client);
    }
}

TEST_CASE("session: the payload of refused requests is not interpreted as requests") {
    namespace flag = protocol::command_flag;
    for (const bool structured : {false, true}) {
        Rig rig;
        Client client = rig.enter({.structured = structured});
        const struct {
            Ask ask;
            Error error;
        } rows[] = {
            {{CommandType::write, rig.options.size - 10, 11}, Error::enospc},
            {{CommandType::write, 0, 1 * mib}, Error::enospc},
            {{CommandType::read, rig.options.size, 1}, Error::einval},
            {{CommandType::write, 0, 100, flag::df}, Error::einval},
            {{static_cast<CommandType>(99), 0, 0}, Error::einval},
            {{CommandType::write_zeroes, 0, page, flag::no_hole | flag::fast_zero}, Error::enotsup},
            {{CommandType::write_zeroes, 0, page, flag::fast_zero}, Error::none},
            {{CommandType::trim, 1, ~std::uint32_t{0}}, Error::einval},
            {{CommandType::block_status, 0, 0}, Error::einval},
            {{CommandType::read, 0, 10}, Error::none},
        };
        std::vector<std::uint64_t> cookies;
        for (const auto& row : rows) cookies.push_back(client.send(row.ask));
        for (std::size_t i = 0; i != std::size(rows); ++i) {
            CAPTURE(i);
            CHECK(client.answer(cookies[i]).error == rows[i].error);
        }
        // Without the magic number the start of the next request is unknown.
        client.send_bytes(Bytes(protocol::request_size));
        client.check_end();
        rig.check_clean(client);
    }
}

TEST_CASE("session: a handshake that takes too long is closed") {
    Rig rig({.limits = {.handshake = std::chrono::seconds(1)}});
    Client silent = rig.connect();
    Client slow = rig.connect();
    const Bytes begun = handshake_bytes({});
    slow.send_bytes(std::span(begun).first(10));
    Client served = rig.enter_at_once();
    CHECK_FALSE(silent.shake_hands(true).has_value());
    CHECK_FALSE(slow.shake_hands(true).has_value());
    CHECK(served.ask({CommandType::read, 0, 10}).error == Error::none);
    while (rig.worker.connections() != 1) rig.let_run();
    rig.check_clean(served);
}

}  // namespace
}  // namespace gpunbd::server::test
