// Sessions under access lists, connection limits and rates, and the effect of a reload on them.
#include "tests/server/captured_log.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint32_t err_policy = (1U << 31) + 2;
constexpr std::uint32_t err_unknown = (1U << 31) + 6;

// All clients of a rig belong to this process.
config::AccessRule this_user(config::AccessMode mode = config::AccessMode::read_write) {
    config::AccessRule rule;
    rule.uid = config::Account{::geteuid(), "this"};
    rule.mode = mode;
    return rule;
}

config::AccessRule another_user() {
    config::AccessRule rule;
    rule.uid = config::Account{::geteuid() + 1, "another"};
    return rule;
}

// Replaces the rig's one export, as a reload does, and keeps the volume.
void reload(
    Rig& rig, const config::ExportOptions& options, std::function<void()> then = [] {}) {
    const auto old = rig.exports.snapshot()->front();
    auto next = std::make_shared<Export>(*old);
    next->options = options;
    next->access = AccessList(options.access);
    rig.exports.replace({next});
    rig.worker.check_access(std::move(then));
    rig.on_worker([] {});
}

// The worker sets it at the end of a round, maybe after the last task that the test has posted.
void wait_for(const std::atomic<bool>& is_set) {
    while (!is_set) std::this_thread::yield();
}

config::ExportOptions with_access(std::vector<config::AccessRule> rules) {
    config::ExportOptions options;
    options.access = std::move(rules);
    return options;
}

config::ExportOptions with_iops(std::uint64_t iops) {
    config::ExportOptions options;
    options.rates.iops = iops;
    options.rates.burst = std::chrono::seconds(0);
    return options;
}

TEST_CASE("access: each command of a session is checked against the rules of its peer") {
    Rig rig;
    reload(rig, with_access({this_user(config::AccessMode::read_only)}));
    Client reader = rig.enter();
    CHECK(reader.ask({CommandType::write, 0, 10}).error == Error::eperm);
    CHECK(reader.ask({CommandType::trim, 0, page}).error == Error::eperm);
    CHECK(reader.ask({CommandType::write_zeroes, 0, page}).error == Error::eperm);
    CHECK(reader.ask({CommandType::read, 0, 10}).error == Error::none);
    reader.close();
    reload(rig, with_access({another_user()}));
    Client refused = rig.connect();
    CHECK(refused.shake_hands() == err_unknown);
    Client over_tcp = rig.connect({}, Transport::tcp);
    CHECK(over_tcp.shake_hands() == err_unknown);
    rig.check_clean(refused, over_tcp);
}

TEST_CASE("access: a reload disconnects only clients without access, and logs the reason") {
    const CapturedLog log(spdlog::level::info);
    Rig rig;
    Client writer = rig.enter();
    Client over_tcp = rig.enter({}, Transport::tcp);
    REQUIRE(writer.ask({CommandType::write, 0, 10}).error == Error::none);
    reload(rig, with_access({another_user(), this_user()}));
    over_tcp.check_end();
    CHECK(writer.ask({CommandType::write, 0, 10}).error == Error::none);
    reload(rig, with_access({this_user(config::AccessMode::read_only)}));
    writer.check_end();
    Client reader = rig.enter();
    // The client is read-only already.
    reload(rig, with_access({another_user(), this_user(config::AccessMode::read_only)}));
    CHECK(reader.ask({CommandType::read, 0, 10}).error == Error::none);
    reload(rig, with_access({this_user()}));
    CHECK(reader.ask({CommandType::read, 0, 10}).error == Error::none);
    // A removed export is not checked.
    rig.exports.replace({});
    rig.worker.check_access([] {});
    CHECK(reader.ask({CommandType::read, 0, 10}).error == Error::none);
    reader.close();
    rig.wait_until_left();
    log.check("the new configuration denies access to the export: none of its 2 rules matches");
    log.check("the new configuration permits only reading: rule 1 matches: uid 'this'");
    rig.check_over();
}

// As RunTimeExports does.
void rename(Rig& rig, const std::string& from, const std::string& to) {
    const auto old = rig.exports.find(from);
    auto next = std::make_shared<Export>(*old);
    next->options.name = to;
    next->info.name = to;
    rig.worker.rename_counters(from, to);
    rig.exports.replace({next});
    rig.worker.check_access([] {});
    rig.on_worker([] {});
}

TEST_CASE("access: clients of a renamed export stay, under its new name") {
    Rig rig;
    rename(rig, "", "first");
    Client client = rig.enter({.name = "first"});
    REQUIRE(client.ask({CommandType::write, 0, 10}).error == Error::none);
    rename(rig, "first", "second");
    REQUIRE(client.ask({CommandType::write, 0, 10}).error == Error::none);
    rig.settle();
    const auto connections = rig.worker.counters().connections();
    REQUIRE(connections.size() == 1);
    CHECK(connections[0].facts->export_name == "second");
    const auto counted = rig.worker.counters().exports();
    REQUIRE(counted.size() == 1);
    CHECK(*counted[0].name == "second");
    CHECK(counted[0].counters->by_type[1].requests.value() == 2);
    Client late = rig.connect({.name = "first"});
    CHECK(late.shake_hands() == err_unknown);
    late.close();
    // Rules that a reload changes later are those of its export.
    reload(rig, [] {
        config::ExportOptions options = with_access({another_user()});
        options.name = "second";
        return options;
    }());
    client.check_end();
    rig.check_clean();
}

TEST_CASE("access: a renamed export takes its counters along, and another one begins at zero") {
    WorkerCounters counters;
    const auto requests_of = [&](const std::string& name) {
        std::uint64_t sum = 0;
        for (const auto& each : counters.exports()) {
            if (*each.name == name) sum += each.counters->by_type[0].requests.value();
        }
        return sum;
    };
    const auto first = counters.of_export("first");
    first->by_type[0].count_answer(1);
    const auto removed = counters.of_export("second");
    removed->by_type[0].count_answer(1);
    counters.rename("first", "second");
    counters.rename("none", "second");
    CHECK(counters.of_export("second") == first);
    CHECK(requests_of("second") == 2);
    CHECK(requests_of("first") == 0);
    CHECK(counters.of_export("first") != first);
    counters.rename("second", "third");
    CHECK(requests_of("second") == 1);
    CHECK(counters.of_export("third") == first);
    CHECK(counters.of_export("second") == removed);
}

TEST_CASE("access: after a reload no write that it denies is still executing") {
    enum class End { none, by_client, by_reload };
    for (const End before : {End::none, End::by_client, End::by_reload}) {
        CAPTURE(static_cast<int>(before));
        Rig rig;
        Client client = rig.enter();
        REQUIRE(client.ask({CommandType::write, 0, page}).error == Error::none);
        rig.script.hold = true;
        client.send({CommandType::write, 0, 4 * kib});
        rig.let_run();
        if (before == End::by_client) client.close();
        const auto read_only = with_access({this_user(config::AccessMode::read_only)});
        if (before == End::by_reload) reload(rig, read_only);
        rig.let_run();
        std::atomic<bool> holds{false};
        reload(rig, read_only, [&holds] { holds = true; });
        rig.let_run();
        CHECK_FALSE(holds);
        rig.script.hold = false;
        rig.wait_until_left();
        wait_for(holds);
        if (before != End::by_client) client.close();
        rig.check_clean();
    }
}

TEST_CASE("access: a reload does not wait for requests that it permits") {
    Rig rig;
    Client writer = rig.enter();
    REQUIRE(writer.ask({CommandType::write, 0, page}).error == Error::none);
    rig.script.hold = true;
    const std::uint64_t held = writer.send({CommandType::write, 0, 4 * kib});
    rig.let_run();
    std::atomic<bool> holds{false};
    reload(rig, with_access({this_user()}), [&holds] { holds = true; });
    wait_for(holds);
    rig.script.hold = false;
    CHECK(writer.answer(held).error == Error::none);
    rig.check_clean(writer);
}

TEST_CASE("access: a closed connection frees its slot of the export, however it ends") {
    Rig rig;
    config::ExportOptions two;
    two.max_connections = 2;
    two.max_connections_per_peer = 2;
    reload(rig, two);
    using End = void (*)(Rig&, Client&);
    const End ends[] = {
        [](Rig&, Client& client) { client.close(); },
        [](Rig&, Client& client) {
            client.send({CommandType::disc, 0, 0});
        },
        [](Rig&, Client& client) { client.shut_down_sending(); },
        [](Rig&, Client& client) {
            client.send({CommandType::write, 0, 8 * page});
            client.send({CommandType::read, 0, 8 * page});
            client.close();
        },
        [](Rig&, Client& client) {
            const Bytes noise(28, std::byte{0x55});
            client.send_bytes(noise);
        },
        [](Rig& its, Client&) { its.cut(); },
        [](Rig& its, Client&) { its.drain(); },
    };
    for (const End end : ends) {
        Client first = rig.enter();
        Client second = rig.enter();
        Client third = rig.connect();
        CHECK(third.shake_hands() == err_policy);
        third.close();
        end(rig, first);
        end(rig, second);
        first.close();
        second.close();
        rig.wait_until_left();
    }
    // A client that disconnects before it receives the reply occupies no slot either.
    for (int i = 0; i != 5; ++i) {
        Client hasty = rig.connect();
        hasty.send_bytes(handshake_bytes({}));
        hasty.close();
    }
    rig.wait_until_left();
    Client first = rig.enter();
    Client second = rig.enter();
    rig.check_over(first, second);
}

TEST_CASE("rates: delayed requests are answered, in every variant") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig({.devices = variant.devices});
        config::ExportOptions options = with_iops(300);
        options.rates_per_peer.bytes_per_second = 20 * mib;
        options.rates_per_peer.burst = std::chrono::seconds(0);
        reload(rig, options);
        Client client = rig.enter(variant.handshake());
        Model model(rig.options.size);
        for (const Ask& ask : happy_script(variant)) model.ask(client, ask);
        // Many requests at once, some of them invalid.
        for (int i = 0; i != 20; ++i) {
            client.send({CommandType::write, page, 100, 0, 9});
            client.send({CommandType::write, rig.options.size, 100});
            client.send({CommandType::flush, 0, 0});
        }
        client.receive_all({});
        rig.check_clean(client);
    }
}

// Executes one request and then delays all further ones for a very long time.
Client with_a_request_held_back(Rig& rig, Transport transport, std::uint64_t& cookie) {
    reload(rig, with_iops(1));
    const auto use = rig.exports.snapshot()->front()->use;
    const auto place = use->enter("test").lease;
    for (int i = 0; i != 3600; ++i) {
        place->rates().of_export->take(0, TokenBucket::Clock::now());
    }
    Client client = rig.enter({}, transport);
    cookie = client.send({CommandType::write, 0, 2 * page});
    rig.let_run();
    CHECK_FALSE(client.readable());
    return client;
}

TEST_CASE("rates: a stopping server does not wait for delayed requests") {
    Rig rig;
    std::uint64_t cookie = 0;
    Client client = with_a_request_held_back(rig, Transport::unix_, cookie);
    // The server does not wait for later requests either, each of which is delayed separately.
    for (int i = 0; i != 200; ++i) client.send({CommandType::read, 0, 10});
    rig.drain();
    CHECK(client.answer(cookie).error == Error::eshutdown);
    client.receive_all(Error::eshutdown);
    client.check_end();
    rig.check_clean();
}

// It also returns its tokens.
TEST_CASE("rates: a delayed request does not prevent a disconnect by the server or by the client") {
    for (const bool kept : {false, true}) {
        for (const char* const ending : {"cut", "drain", "reset", "close"}) {
            CAPTURE(kept);
            CAPTURE(ending);
            Rig rig({.kept = kept});
            std::uint64_t cookie = 0;
            // Only a Unix socket reports immediately that its peer has closed it.
            const bool closes = ending == std::string_view("close");
            Client client =
                with_a_request_held_back(rig, closes ? Transport::unix_ : Transport::tcp, cookie);
            const auto place = rig.exports.snapshot()->front()->use->enter("test").lease;
            const auto bucket = place->rates().of_export;
            // The bucket is overdrawn by an hour, so that the time of the call does not matter.
            const auto next = bucket->take(0, TokenBucket::Clock::now());
            bucket->give_back(0);
            if (ending == std::string_view("cut")) rig.cut();
            if (ending == std::string_view("drain")) rig.drain();
            if (ending == std::string_view("reset")) client.reset();
            if (closes) client.close();
            rig.wait_until_left();
            CHECK(bucket->take(0, TokenBucket::Clock::now()) == next - std::chrono::seconds(1));
            rig.check_over();
        }
    }
}

TEST_CASE("rates: delayed requests continue under new rates, and without rates") {
    for (const bool none : {true, false}) {
        CAPTURE(none);
        Rig rig;
        std::uint64_t cookie = 0;
        Client client = with_a_request_held_back(rig, Transport::unix_, cookie);
        reload(rig, none ? config::ExportOptions{} : with_iops(1000));
        CHECK(client.answer(cookie).error == Error::none);
        CHECK(client.ask({CommandType::read, 0, 10}).error == Error::none);
        rig.check_clean(client);
    }
}

TEST_CASE("rates: a delayed request is refused if the export has shrunk below its end") {
    Rig rig;
    std::uint64_t cookie = 0;
    Client client = with_a_request_held_back(rig, Transport::unix_, cookie);
    const auto volume = rig.exports.snapshot()->front()->volume;
    REQUIRE(volume->resize(volume->page_size()).empty());
    REQUIRE(volume->size() < 2 * page);
    reload(rig, {});
    CHECK(client.answer(cookie).error == Error::enospc);
    CHECK(volume->is_hole_from(0));
    CHECK(client.ask({CommandType::write, 0, 10}).error == Error::none);
    rig.check_over(client);
}

TEST_CASE("rates: a client with a delayed request is not idle") {
    Rig rig({.limits = {.idle = std::chrono::milliseconds(200)}});
    reload(rig, with_iops(2));
    Client client = rig.enter_at_once(std::vector<Ask>(4, {CommandType::read, 0, 10}));
    client.receive_all({});
    client.check_end();  // now it is idle
    rig.check_clean();
}

}  // namespace
}  // namespace gpunbd::server::test
