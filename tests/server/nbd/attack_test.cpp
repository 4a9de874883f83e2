// Hostile or faulty clients, and their effect on other clients of the same worker. The tests count
// work and measure no time.
#include "server/nbd/command_cost.hpp"
#include "server/nbd/read_operation.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

RigOptions attacked(std::string_view devices) {
    RigOptions options{.devices = devices};
    options.size = 64 * page;
    return options;
}

TEST_CASE("attack: queued zeroing requests end with their connection") {
    for (const char* devices : {"s", "h"}) {
        CAPTURE(devices);
        Rig rig(attacked(devices));
        Client client = rig.enter();
        Client other = rig.enter();
        REQUIRE(client.ask({CommandType::write, 0, 64 * page}).error == Error::none);
        rig.settle();
        const std::uint64_t before = rig.script.copies_seen;
        rig.script.hold = true;
        client.flood({CommandType::write_zeroes, 0, 64 * page, protocol::command_flag::no_hole},
                     500);
        rig.let_run();
        client.close();
        rig.let_run();
        rig.script.hold = false;
        CHECK(other.ask({CommandType::write_zeroes, 100, 5000}).error == Error::none);
        rig.settle();
        // The limit for one client is 64 MiB in flight, out of 1,000 MiB of requests.
        if (rig.options.devices == "s") CHECK(rig.script.copies_seen - before < 2200);
        rig.check_clean(client, other);
    }
}

TEST_CASE("attack: long zeroing requests of one client do not delay those of another") {
    Rig rig(attacked("s"));
    Client client = rig.enter();
    Client other = rig.enter();
    REQUIRE(client.ask({CommandType::write, 0, 64 * page}).error == Error::none);
    rig.settle();
    rig.script.hold = true;
    client.flood({CommandType::write_zeroes, 0, 64 * page, protocol::command_flag::no_hole}, 200);
    const auto zeroes = other.send({CommandType::write_zeroes, 100, 5000});
    rig.let_run();
    rig.script.copies_until_held = 1000;  // of 12,800
    rig.script.hold = false;
    CHECK(other.answer(zeroes).error == Error::none);
    client.close();
    rig.script.copies_until_held = storage::FaultScript::never;
    rig.script.hold = false;
    rig.check_clean(client, other);
}

TEST_CASE("attack: a BLOCK_STATUS of many pages is one turn of its connection, and no more") {
    RigOptions options = attacked("h");
    options.size = 2 * StatusOperation::max_pages * page;
    Rig rig(options);
    Client client = rig.enter();
    const Ask ask{CommandType::block_status, page + 100, options.size - page - 100};
    const std::vector<protocol::Extent> extents = client.ask(ask).extents;
    REQUIRE(extents.size() == 1);
    CHECK(extents[0].length == StatusOperation::max_pages * page - 100);
    const protocol::Command command{.type = CommandType::block_status,
                                    .length = ask.length,
                                    .contexts = {protocol::MetaContext::base_allocation}};
    constexpr std::int64_t turn = 256 * kib;
    CHECK(cost_of(command, page).turn >= turn);

    for (std::uint64_t i = 0; i <= StatusOperation::max_runs / 2; ++i) {
        REQUIRE(client.ask({CommandType::write, 2 * i * page, 1}).error == Error::none);
    }
    CHECK(client.ask(ask).extents.size() == StatusOperation::max_runs);
    rig.check_over(client);
}

// The event loop always has events, but must still poll the copies.
TEST_CASE("attack: busy sockets do not starve the copies of other clients") {
    Rig rig(attacked("s"));
    Client victim = rig.enter();
    REQUIRE(victim.ask({CommandType::write, 0, page}).error == Error::none);
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> answers{0};
    std::vector<std::thread> threads;
    std::vector<Client> clients;
    for (int i = 0; i != 8; ++i) clients.push_back(rig.enter());
    threads.reserve(clients.size());
    for (Client& client : clients) {
        threads.emplace_back([&client, &over, &answers] {
            const Ask hole{CommandType::read, 32 * page, 4 * kib};
            client.flood(hole, 64);
            while (!over) {
                static_cast<void>(client.next());
                client.send(hole);
                ++answers;
            }
            while (client.unanswered() != 0) static_cast<void>(client.next());
        });
    }
    while (answers < 1000) std::this_thread::yield();
    std::vector<std::uint64_t> meanwhile(50);  // answers to the others during each READ
    for (std::uint64_t& each : meanwhile) {
        const std::uint64_t before = answers;
        CHECK(victim.ask({CommandType::read, 0, 4 * kib}).error == Error::none);
        each = answers - before;
    }
    // One round over all clients takes a few hundred replies, and a READ takes a few rounds. A
    // few READs may take much longer, because the machine does not run this thread.
    const auto median = meanwhile.begin() + 25;
    std::nth_element(meanwhile.begin(), median, meanwhile.end());
    CHECK(*median < 20'000);
    over = true;
    for (std::thread& thread : threads) thread.join();
    rig.check_clean(victim, clients);
}

TEST_CASE("attack: slowly arriving payload does not block staging memory") {
    RigOptions options = attacked("s");
    options.channels.pinned = 32 * kib;
    options.stall_limit = std::chrono::milliseconds(200);
    Rig rig(options);
    Client quick = rig.enter();
    REQUIRE(quick.ask({CommandType::write, 0, 4 * page}).error == Error::none);
    std::vector<Client> slow;
    std::vector<Bytes> payloads;
    for (int i = 0; i != 4; ++i) {
        slow.push_back(rig.enter());
        const Ask ask{CommandType::write, 0, 32 * page};
        payloads.push_back(encoded(ask, slow.back().expect(ask)));
        slow.back().send_bytes(std::span(payloads.back()).first(100));
    }
    rig.let_run();
    std::atomic<bool> over{false};
    std::thread trickle([&] {
        for (std::size_t at = 100; !over; ++at) {
            for (std::size_t i = 0; i != slow.size(); ++i) {
                slow[i].offer(std::span(payloads[i]).subspan(at, 1));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    });
    CHECK(quick.ask({CommandType::write, 0, 4 * page}).error == Error::none);
    over = true;
    trickle.join();
    rig.check_clean(quick, slow);
}

TEST_CASE("attack: a client that reads no replies does not exhaust the worker's memory") {
    for (const char* devices : {"s", "h"}) {
        CAPTURE(devices);
        RigOptions options = attacked(devices);
        options.in_flight = 16 * mib;
        options.stall_limit = std::chrono::milliseconds(100);
        Rig rig(options);
        Client quick = rig.enter();
        REQUIRE(quick.ask({CommandType::write, 0, 64 * page}).error == Error::none);
        std::vector<Client> stalled;
        for (int i = 0; i != 20; ++i) {
            stalled.push_back(rig.enter());
            stalled.back().flood({CommandType::read, 0, 64 * page}, 10);
        }
        rig.settle();
        // The other clients have 400 MiB of pending replies, which must not use memory of the
        // server.
        CHECK_FALSE(rig.on_worker_with([](WorkerContext& its) { return its.budget.exceeded(); }));
        quick.flood({CommandType::read, 0, 4 * kib}, 32);
        quick.receive_all();
        for (Client& each : stalled)
            each.close();  // including those that the server has not disconnected
        rig.check_clean(quick, stalled);
    }
}

// Each reader holds pages that are trimmed and rewritten meanwhile, on a device without a spare
// page.
TEST_CASE("attack: clients that read no replies cause no ENOSPC for writers") {
    for (const char* devices : {"h", "s"}) {
        for (const auto provision : {storage::Provision::thin, storage::Provision::full}) {
            CAPTURE(devices);
            RigOptions options = attacked(devices);
            options.capacity = options.size;
            options.provision = provision;
            Rig rig(options);
            Client writer = rig.enter();
            REQUIRE(writer.ask({CommandType::write, 0, 64 * page}).error == Error::none);
            std::vector<Client> readers;
            for (int i = 0; i != 3; ++i) {
                readers.push_back(rig.enter());
                for (int turn = 0; turn != 20; ++turn) {
                    for (std::uint64_t at = 0; at != 64 * page; at += page) {
                        readers.back().send({CommandType::read, at, page});
                    }
                }
            }
            rig.let_run();
            for (std::uint32_t round = 1; round != 6; ++round) {
                CHECK(writer.ask({CommandType::trim, 0, 64 * page}).error == Error::none);
                if (rig.options.devices == "h") {
                    CHECK(rig.volume->retired_bytes() == 64 * page);
                }
                const Ask ask{CommandType::write, 0, 64 * page, 0, round};
                CHECK(writer.ask(ask).error == Error::none);
                CHECK(writer.ask({CommandType::read, 0, 64 * page}).data == payload_of(ask));
            }
            CHECK(rig.volume->allocated_bytes() == options.size);
            CHECK(writer.ask({CommandType::trim, 0, 64 * page}).error == Error::none);
            for (Client& reader : readers) {
                reader.receive_all();
            }
            rig.let_run();
            CHECK(rig.volume->retired_bytes() == 0);
            rig.check_clean(writer, readers);
        }
    }
}

TEST_CASE("attack: memory of requests is accounted, bounded, and released") {
    const Ask asks[] = {{CommandType::trim, 0, 40 * page},
                        {CommandType::block_status, 0, 64 * page},
                        {CommandType::read, 0, 2 * page},
                        {CommandType::write_zeroes, 0, page}};
    for (const Ask& ask : asks) {
        RigOptions options = attacked("s");
        options.in_flight = 256 * kib;
        Rig rig(options);
        std::vector<Client> clients;
        for (int i = 0; i != 10; ++i) {
            clients.push_back(rig.enter());
            clients.back().flood(ask, 3000);
        }
        rig.let_run();
        // The first request of each client is always admitted, and each client has buffers.
        CHECK(rig.budget_used() < options.in_flight + 10 * 512 * kib);
        for (Client& client : clients) {
            client.receive_all({});
        }
        rig.settle();
        rig.check_over(clients);
        CHECK(rig.budget_used() == 0);
        CHECK(rig.on_worker_with([](WorkerContext& its) {
            return its.operations.zeroes.size() <= OperationPools::max_free &&
                   its.operations.statuses.size() <= OperationPools::max_free &&
                   its.operations.reads.size() <= OperationPools::max_free &&
                   its.receive_buffers.size() <= WorkerContext::max_free_buffers;
        }));
        rig.check_clean();
    }
}

// Idle clients are not counted, so requests of a single active client are submitted immediately.
TEST_CASE("attack: idle clients do not slow down a single active one") {
    Rig rig(attacked("s"));
    Client busy = rig.enter();
    std::vector<Client> idle;
    for (int i = 0; i != 5; ++i) idle.push_back(rig.enter());
    REQUIRE(idle[0].ask({CommandType::write, 0, page}).error == Error::none);
    rig.settle();
    CHECK(rig.on_worker_with([](WorkerContext& its) { return its.scheduler.working(); }) == 0);
    rig.script.hold = true;
    busy.send({CommandType::read, 0, 4 * kib});
    while (!rig.busy()) rig.let_run();
    CHECK(rig.on_worker_with([](WorkerContext& its) { return its.scheduler.working(); }) == 1);
    rig.script.hold = false;
    CHECK(busy.next()->error == Error::none);
    rig.check_clean(busy, idle);
}

}  // namespace
}  // namespace gpunbd::server::test
