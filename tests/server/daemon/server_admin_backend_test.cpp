#include "server/daemon/server_admin_backend.hpp"

#include "storage/base/long_work.hpp"
#include "tests/server/captured_log.hpp"
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t page_of_rig = 32 * kib;

// The rest of a server, which counts its requests.
class RefusingServer final : public ServerAdminBackend::Actions {
 public:
    void perform(const ExportRequest& /*request*/, const Completion& completion) override {
        ++calls;
        completion(NotDone{"not asked"});
    }
    void answer_about_kept(const ServerAdminBackend::KeptQuery& question) override {
        ++calls;
        question.completion(NotDone{question.drop.value_or("no list")});
    }
    void reclaim(const ReclaimRequest& /*request*/, const Completion& /*completion*/) override {
        ++calls;
    }
    void end_reclaim(const EndOfReclaim& /*request*/, const Completion& /*completion*/) override {
        ++calls;
    }
    void add_reclaim(DeviceStatus& status) const override { status.moved_out = 5; }
    std::vector<Validity> validities() const override { return {}; }
    ServerAdminBackend::Volumes volumes() const override { return {}; }
    std::vector<KeptContents::Unused> unused_contents() const override { return {}; }

    int calls = 0;
};

// A server's worker and the backend that observes it.
struct Watched {
    explicit Watched(const RigOptions& options = {}) : rig(options) {
        observed.serves({&rig.worker});
    }

    Status status() {
        rig.settle();
        return observed.status();
    }
    ExportStatus exported() { return status().exports.at(0); }
    std::string name() const { return rig.exports.snapshot()->front()->info.name; }

    Rig rig;
    std::unique_ptr<boost::asio::io_context> io = std::make_unique<boost::asio::io_context>();
    AcceptCounters counters;
    RefusingServer server;
    ServerAdminBackend observed{*io, rig.exports, counters, server};
};

RequestStatus of_type(const ExportStatus& exported, const std::string& type) {
    for (const RequestStatus& each : exported.requests) {
        if (each.type == type) return each;
    }
    return {};
}

TEST_CASE("observed: requests by type, with their bytes and errors") {
    Watched watched;
    CHECK(watched.exported().requests.empty());
    Client client = watched.rig.enter();
    const Ask write{CommandType::write, 0, page_of_rig};
    const Ask read{.offset = 100, .length = 1000};
    CHECK(client.ask(write).error == Error::none);
    for (int i = 0; i != 3; ++i) CHECK(client.ask(read).error == Error::none);
    CHECK(client.ask({CommandType::flush}).error == Error::none);
    CHECK(client.ask({CommandType::block_status, 0, page_of_rig}).error == Error::none);
    CHECK(client.ask({.offset = 1 << 30, .length = 512}).error == Error::einval);

    CHECK(client.ask({.type = static_cast<CommandType>(77)}).error == Error::einval);

    const ExportStatus exported = watched.exported();
    struct Row {
        const char* type;
        std::uint64_t requests;
        std::uint64_t bytes;
        std::uint64_t timed;
    };
    for (const Row& row : {Row{"write", 1, page_of_rig, 1}, Row{"read", 4, 3000, 3},
                           Row{"flush", 1, 0, 1}, Row{"block_status", 1, page_of_rig, 1}}) {
        CAPTURE(row.type);
        const RequestStatus found = of_type(exported, row.type);
        CHECK(found.requests == row.requests);
        CHECK(found.bytes == row.bytes);
        CHECK(found.in_flight == 0);
        CHECK(found.latency.count() == row.timed);
    }
    CHECK(of_type(exported, "read").errors == CountsByReason{{"EINVAL", 1}});
    CHECK(of_type(exported, "unknown").requests == 1);
    CHECK(of_type(exported, "unknown").errors == CountsByReason{{"EINVAL", 1}});
    CHECK(exported.requests.size() == 5);
    CHECK(exported.memory.at(0).used == page_of_rig);
}

TEST_CASE("observed: a full device") {
    Watched watched;
    watched.rig.script.allocations_until_failure = 0;
    Client client = watched.rig.enter();
    CHECK(client.ask({CommandType::write, page_of_rig, page_of_rig}).error == Error::enospc);
    CHECK(of_type(watched.exported(), "write").errors == CountsByReason{{"ENOSPC", 1}});
}

TEST_CASE("observed: requests in flight, and a copy that fails") {
    Watched watched;
    Client client = watched.rig.enter();
    CHECK(client.ask({CommandType::write, 0, 4 * kib}).error == Error::none);
    watched.rig.script.hold = true;
    const std::uint64_t held = client.send({.offset = 0, .length = 4 * kib});
    watched.rig.let_run();
    Status status = watched.observed.status();
    CHECK(of_type(status.exports[0], "read").in_flight == 1);
    CHECK(of_type(status.exports[0], "read").requests == 0);
    CHECK(status.connections.at(0).in_flight == 1);
    CHECK(status.devices.at(0).staging_used == 4 * kib);
    watched.rig.script.copies_until_failure = 0;
    watched.rig.script.hold = false;
    CHECK(client.answer(held).error == Error::eio);
    status = watched.status();
    CHECK(of_type(status.exports[0], "read").in_flight == 0);
    CHECK(of_type(status.exports[0], "read").errors == CountsByReason{{"EIO", 1}});
    CHECK(status.devices.at(0).failures == 1);
    CHECK(status.devices.at(0).staging_used == 0);
}

TEST_CASE("observed: the longest request, and where it waited") {
    Watched watched;
    Client client = watched.rig.enter();
    constexpr std::uint32_t chunk = 8 * kib;  // of RigOptions
    const Ask write{CommandType::write, 0, page_of_rig};
    CHECK(client.ask(write).error == Error::none);
    const auto longest = [&] { return watched.exported().longest; };
    const auto wait_of = [&](std::string_view stage) {
        double sum = 0;
        double found = -1;
        const LongestRequest request = longest();
        for (const WaitStatus& each : request.waits) {
            sum += each.seconds;
            if (each.stage == stage) found = each.seconds;
        }
        CHECK(sum == doctest::Approx(request.seconds));
        return found;
    };
    // Longer than the first request took, however slow the machine is.
    const double held = std::max(0.03, 2 * longest().seconds);
    const std::chrono::duration<double> pause(held);

    SUBCASE("for the device") {
        watched.rig.script.hold = true;
        const std::uint64_t asked = client.send({.length = chunk});
        watched.rig.let_run();
        std::this_thread::sleep_for(pause);
        watched.rig.script.hold = false;
        CHECK(client.answer(asked).error == Error::none);
        CHECK(longest().type == "read");
        // The time since the last poll is the worker's, which may have been preempted.
        CHECK(wait_of("device") > 0);
        CHECK(wait_of("device") + wait_of("worker") >= held);
    }
    SUBCASE("for staging memory") {
        watched.rig.script.hold = true;
        // More than there is staging memory for.
        client.send_bytes(client.expect_all(std::vector<Ask>(4, Ask{.length = 2 * chunk})));
        watched.rig.let_run();
        std::this_thread::sleep_for(pause);
        watched.rig.script.hold = false;
        client.receive_all();
        CHECK(wait_of("memory") >= held);
    }
    SUBCASE("for the payload of a WRITE") {
        const Bytes sent = client.expect_all({write});
        const std::span<const std::byte> all(sent);
        client.send_bytes(all.first(1000));
        watched.rig.let_run();
        std::this_thread::sleep_for(pause);
        client.send_bytes(all.subspan(1000));
        client.receive_all();
        CHECK(longest().type == "write");
        CHECK(wait_of("payload") >= held);
    }
}

TEST_CASE("observed: connections appear, are described, and disappear") {
    Watched watched;
    CHECK(watched.status().connections.empty());
    {
        Client waits = watched.rig.connect();
        Client client = watched.rig.enter();
        CHECK(client.ask({.length = 512}).error == Error::none);
        watched.rig.let_run();
        const Status status = watched.observed.status();
        REQUIRE(status.connections.size() == 2);
        CHECK(status.handshakes == 1);
        const bool first_serves = status.connections[0].serving;
        const ConnectionStatus& served = status.connections[first_serves ? 0 : 1];
        const ConnectionStatus& other = status.connections[first_serves ? 1 : 0];
        CHECK(served.serving);
        CHECK_FALSE(other.serving);
        CHECK(served.export_name == watched.name());
        CHECK(served.requests == 1);
        CHECK(served.read == 512);
        CHECK(served.written == 0);
        CHECK(served.id != other.id);
        CHECK_FALSE(served.peer.empty());
    }
    watched.rig.wait_until_left();
    const Status status = watched.status();
    CHECK(status.connections.empty());
    CHECK(status.failed_handshakes.at("hung_up") == 1);
    CHECK(status.handshakes == 1);
}

// Otherwise a client that requests much and reads little would look busy.
TEST_CASE("observed: a READ counts the bytes that were sent, not those requested") {
    for (const bool structured : {true, false}) {
        for (const bool hole : {true, false}) {
            CAPTURE(structured);
            CAPTURE(hole);
            Watched watched({.devices = "h", .size = 64 * mib});
            Client client = watched.rig.enter({.structured = structured});
            constexpr std::uint64_t length = 8 * mib;
            if (!hole) CHECK(client.ask({CommandType::write, 0, length}).error == Error::none);
            std::vector<std::uint64_t> asked;
            for (int i = 0; i != 4; ++i) asked.push_back(client.send({.length = length}));
            watched.rig.let_run();
            Status status = watched.observed.status();
            const bool all = structured && hole;  // a hole has a short reply
            const std::uint64_t before = status.connections.at(0).read;
            CHECK(of_type(status.exports[0], "read").bytes == before);
            CHECK(before > 0);
            CHECK((before == 4 * length) == all);
            if (!all) CHECK(before < length);  // a part of the first reply
            for (const std::uint64_t cookie : asked) {
                CHECK(client.answer(cookie).error == Error::none);
            }
            status = watched.status();
            CHECK(status.connections.at(0).read == 4 * length);
            CHECK(of_type(status.exports[0], "read").bytes == 4 * length);
        }
    }
}

TEST_CASE("observed: requests that failed because of the client") {
    Watched watched;
    Client client = watched.rig.enter();
    Client other = watched.rig.enter();
    for (int i = 0; i != 3; ++i) {
        CHECK(client.ask({.offset = 1 << 30, .length = 512}).error == Error::einval);
    }
    CHECK(client.ask({CommandType::write, 0, 512}).error == Error::none);
    watched.rig.script.copies_until_failure = 0;
    CHECK(client.ask({.length = 512}).error == Error::eio);
    CHECK(other.ask({.offset = page_of_rig, .length = 512}).error == Error::none);
    std::map<std::uint64_t, std::uint64_t> by_requests;
    for (const ConnectionStatus& each : watched.status().connections) {
        by_requests[each.requests] = each.errors;
    }
    CHECK(by_requests == std::map<std::uint64_t, std::uint64_t>{{1, 0}, {5, 4}});
}

TEST_CASE("observed: a client that does not read its replies is stalled until it does") {
    // Replies of 1 MiB each end a turn of sending, and the socket is full when the next one comes.
    for (const std::uint32_t length : {8 * mib, 1 * mib}) {
        CAPTURE(length);
        Watched watched({.devices = "h", .size = 64 * mib});
        Client client = watched.rig.enter({.structured = false});
        Client other = watched.rig.enter();
        std::vector<std::uint64_t> asked;
        for (std::uint32_t sent = 0; sent != 8 * mib; sent += length) {
            asked.push_back(client.send({.length = length}));
            watched.rig.let_run();
        }
        CHECK(watched.observed.status().exports.at(0).stalled == 0);  // not for long enough
        // Long enough, without waiting.
        watched.rig.on_worker_with([](WorkerContext& its) {
            for (const auto& each : its.counters.connections()) {
                auto& since = const_cast<Counter&>(each.counters->unsent_since);
                if (since.value() != 0) since.set(since.value() - 12'000'000'000);
            }
        });
        const Status status = watched.observed.status();
        CHECK(status.exports.at(0).stalled == 1);
        REQUIRE(status.connections.size() == 2);
        std::vector<double> stalled{status.connections[0].stalled, status.connections[1].stalled};
        std::sort(stalled.begin(), stalled.end());
        CHECK(stalled[0] == 0);
        CHECK(stalled[1] >= 12);
        for (const std::uint64_t each : asked) CHECK(client.answer(each).error == Error::none);
        CHECK(watched.status().exports.at(0).stalled == 0);
        const CapturedLog log(spdlog::level::info);
        client.disconnect();
        // The session logs its line after it has closed the socket.
        std::vector<std::string> lines;
        for (int i = 0; i != 1000 && lines.empty(); ++i) {
            watched.rig.on_worker([] {});
            lines = log.lines(config::LogFormat::text);
        }
        REQUIRE(lines.size() == 1);
        CHECK(contains(lines[0], "; the client did not read replies for 1"));
    }
}

TEST_CASE("observed: the age of a connection follows the monotonic clock") {
    Watched watched;
    watched.rig.on_worker_with([](WorkerContext& its) {
        its.counters.begin(
            {.peer = "early", .listener = "tcp", .since = ConnectionFacts::Clock::now() - 1h});
    });
    static_assert(ConnectionFacts::Clock::is_steady);
    const Status status = watched.observed.status();
    REQUIRE(status.connections.size() == 1);
    CHECK(status.connections[0].age >= 3600);
    CHECK(status.connections[0].age < 7200);
}

TEST_CASE("observed: closes the connection with the id, and no other") {
    Watched watched;
    Client first = watched.rig.enter();
    Client second = watched.rig.enter();
    watched.rig.let_run();
    const Status status = watched.observed.status();
    REQUIRE(status.connections.size() == 2);
    const std::uint64_t id = std::min(status.connections[0].id, status.connections[1].id);
    const auto end = [&](std::uint64_t which) {
        std::promise<Outcome> outcome;
        watched.observed.end_connection(
            which, Completion([&](Outcome its) { outcome.set_value(std::move(its)); }));
        return outcome.get_future().get();
    };
    const Outcome unknown = end(id + 1000);
    REQUIRE(std::holds_alternative<NotDone>(unknown));
    CHECK(std::get<NotDone>(unknown).unknown);
    CHECK(std::holds_alternative<Done>(end(id)));
    CHECK_FALSE(first.next().has_value());
    CHECK(second.ask({.length = 512}).error == Error::none);
}

TEST_CASE("observed: the map of an export, its pages, and recent accesses") {
    Watched watched;
    const std::string name = watched.name();
    const std::uint64_t size = watched.rig.options.size;
    Client client = watched.rig.enter();
    auto map = watched.observed.map(name, 0, size, 1024);
    REQUIRE(map.has_value());
    CHECK(map->cell == page_of_rig);
    CHECK(map->used == std::vector<std::uint8_t>(watched.rig.pages(), 0));
    const Ask write{CommandType::write, 2 * page_of_rig, page_of_rig};
    // The map shows the accesses of the last second, so they are repeated if the machine has
    // stalled.
    const auto now = [] { return std::chrono::steady_clock::now(); };
    for (auto begin = now() - 1h; now() - begin >= 1s;) {
        begin = now();
        watched.observed.map(name, 0, size, 1024);  // what follows is recorded for this second
        CHECK(client.ask(write).error == Error::none);
        CHECK(client.ask({.offset = 4 * page_of_rig, .length = 512}).error == Error::none);
        watched.rig.settle();
        map = watched.observed.map(name, 0, size, 1024);
    }
    for (std::uint64_t i = 0; i != watched.rig.pages(); ++i) {
        CAPTURE(i);
        CHECK(map->used[i] == (i == 2 ? 100 : 0));
        CHECK(map->written[i] == (i == 2 ? 1 : 0));
        CHECK(map->read[i] == (i == 4 ? 1 : 0));
    }
    // If cells are larger than a page, the last one is shorter.
    map = watched.observed.map(name, 0, size, 3);
    CHECK(map->cell == 4 * page_of_rig);
    CHECK(map->used == std::vector<std::uint8_t>{25, 0, 0});
    // The export ends within its last page.
    map = watched.observed.map(name, size - 1, 1 << 30, 8);
    CHECK(map->offset == 8 * page_of_rig);
    CHECK(map->length == size - 8 * page_of_rig);
    CHECK(watched.observed.map(name, size + 1, 1, 8)->used.empty());
    CHECK_FALSE(watched.observed.map("another", 0, size, 8).has_value());

    const auto pages = watched.observed.pages(name, 0, size, 100);
    REQUIRE(pages->runs.size() == 3);
    CHECK(pages->runs[0].device.empty());
    CHECK(pages->runs[1].offset == 2 * page_of_rig);
    CHECK(pages->runs[1].length == page_of_rig);
    CHECK(pages->runs[1].device == watched.rig.devices.front()->info().id);
    CHECK(pages->runs[2].length == size - 3 * page_of_rig);
    CHECK_FALSE(pages->next.has_value());
    const auto some = watched.observed.pages(name, 0, size, 2);
    CHECK(some->runs.size() == 2);
    CHECK(some->next == 3 * page_of_rig);
    // A hole again.
    CHECK(client.ask({CommandType::trim, 2 * page_of_rig, page_of_rig}).error == Error::none);
    watched.rig.settle();
    CHECK(watched.observed.map(name, 0, size, 1024)->used[2] == 0);

    // While the export is resized, its volume has the new size already.
    CHECK(watched.rig.exports.snapshot()->front()->volume->resize(2 * size).empty());
    map = watched.observed.map(name, 0, 2 * size, 1024);
    CHECK(map->size == size);
    CHECK(map->written.size() == watched.rig.pages());
}

TEST_CASE("observed: no request of a client that has hung up is in flight") {
    Watched watched;
    Client client = watched.rig.enter();
    CHECK(client.ask({CommandType::write, 0, 4 * kib}).error == Error::none);
    watched.rig.script.hold = true;
    client.send({.offset = 0, .length = 4 * kib});
    watched.rig.let_run();
    CHECK(of_type(watched.observed.status().exports[0], "read").in_flight == 1);
    client.close();
    watched.rig.let_run();
    watched.rig.script.hold = false;
    watched.rig.settle();
    const Status status = watched.status();
    for (const RequestStatus& each : status.exports[0].requests) CHECK(each.in_flight == 0);
}

TEST_CASE("observed: counters are consistent while workers count") {
    Watched watched({.devices = "h"});
    Client client = watched.rig.enter();
    std::atomic<bool> stop{false};
    std::uint64_t seen = 0;
    std::thread reader([&] {
        while (!stop) {
            const Status status = watched.observed.status();
            const RequestStatus reads = of_type(status.exports.at(0), "read");
            CHECK(reads.requests >= seen);
            CHECK(reads.in_flight <= 1);
            seen = std::max(seen, reads.requests);
        }
    });
    for (int i = 0; i != 2000; ++i) {
        CHECK(client.ask({.length = 512}).error == Error::none);
    }
    stop = true;
    reader.join();
    CHECK(of_type(watched.exported(), "read").requests == 2000);
}

TEST_CASE("observed: a change that the server refuses, or does not complete") {
    Watched watched;
    const std::string name = watched.name();
    std::optional<Outcome> outcome;
    const auto completion = [&] {
        outcome.reset();
        return Completion([&](Outcome its) { outcome = std::move(its); });
    };
    const auto why_not = [&] {
        watched.io->restart();
        watched.io->run();
        return std::get<NotDone>(outcome.value()).why;
    };
    watched.observed.perform(SetRates{.name = name, .rates = {.bytes_per_second = {}, .iops = 5}},
                             completion());
    CHECK_FALSE(outcome);  // the change runs on the server's thread, and the caller does not wait
    CHECK(why_not() == "not asked");
    watched.observed.list_kept(completion());
    CHECK(why_not() == "no list");
    watched.observed.drop_kept("old", completion());
    CHECK(why_not() == "old");
    watched.observed.perform(SetReadOnly{.name = name, .read_only = true}, completion());
    watched.io.reset();  // as at the end of the server
    REQUIRE(outcome);
    CHECK(contains(std::get<NotDone>(*outcome).why, "the server is ending"));
}

TEST_CASE("observed: a destroyed backend makes no change") {
    Rig rig;
    boost::asio::io_context io;
    const AcceptCounters counters;
    RefusingServer server;
    std::optional<ServerAdminBackend> backend(std::in_place, io, rig.exports, counters, server);
    std::vector<Outcome> outcomes;
    const auto completion = [&] {
        return Completion([&](Outcome its) { outcomes.push_back(std::move(its)); });
    };
    backend->perform(RemoveExport{.name = "one"}, completion());
    backend->list_kept(completion());
    backend->drop_kept("old", completion());
    backend->reclaim({.device = "host"}, completion());
    backend->end_reclaim({.device = "host"}, completion());
    backend.reset();
    io.run();
    CHECK(server.calls == 0);
    REQUIRE(outcomes.size() == 5);
    for (const Outcome& each : outcomes) CHECK(std::holds_alternative<NotDone>(each));
}

TEST_CASE("observed: long operations are reported while they last") {
    Watched watched;
    {
        storage::LongWork work("provisioning", "cuda:0", 100, "bytes");
        work.set_done(40);
        const Status status = watched.observed.status();
        REQUIRE(status.progress.size() == 1);
        CHECK(status.progress[0].what == "provisioning");
        CHECK(status.progress[0].of == "cuda:0");
        CHECK(status.progress[0].done == 40);
        CHECK(status.progress[0].total == 100);
    }
    CHECK(watched.observed.status().progress.empty());
}

}  // namespace
}  // namespace gpunbd::server::test
