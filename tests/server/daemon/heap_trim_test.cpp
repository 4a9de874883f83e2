#include "server/daemon/housekeeping.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/server/rig.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("budget: a burst is reported once, and ends when little of it is in use") {
    Budget budget(std::uint64_t{1} << 40);
    budget.charge(Budget::burst);
    CHECK_FALSE(budget.had_burst());
    CHECK_FALSE(budget.end_burst());
    budget.charge(1);
    CHECK(budget.had_burst());
    CHECK_FALSE(budget.end_burst());
    budget.discharge(Budget::burst - Budget::end_of_burst);
    CHECK(budget.had_burst());
    CHECK_FALSE(budget.end_burst());
    budget.discharge(1);
    CHECK(budget.end_burst());
    CHECK_FALSE(budget.had_burst());
    CHECK_FALSE(budget.end_burst());
    budget.charge(Budget::burst);
    CHECK(budget.had_burst());
    budget.discharge(budget.used());
    CHECK(budget.end_burst());
}

// Workers of its own; `trims` counts how often their heap was trimmed.
struct Trimmed {
    Trimmed() {
        for (int i = 0; i != 2; ++i) {
            workers.push_back(
                std::make_unique<Worker>(storage::ChannelOptions{}, std::uint64_t{1} << 40, false));
            threads.emplace_back([worker = workers.back().get()] { worker->run(); });
        }
    }
    ~Trimmed() {
        for (const auto& worker : workers) worker->stop();
        for (std::thread& thread : threads) thread.join();
    }
    Trimmed(const Trimmed&) = delete;
    Trimmed& operator=(const Trimmed&) = delete;

    template <typename Call>
    void on_worker(std::size_t which, Call call) {
        std::promise<void> done;
        workers[which]->post([&](WorkerContext& its) {
            call(its);
            done.set_value();
        });
        done.get_future().get();
    }
    // Runs a check and everything that it posts.
    int look() {
        trim.check();
        for (std::size_t i = 0; i != workers.size(); ++i) on_worker(i, [](WorkerContext&) {});
        io.restart();
        io.poll();
        return std::exchange(trims, 0);
    }

    boost::asio::io_context io;
    HeapTrim::Workers workers;
    std::vector<std::thread> threads;
    int trims = 0;
    HeapTrim trim{io, workers, [this] { ++trims; }};
};

TEST_CASE("heap: trimmed once after each burst of requests, not before its end") {
    Trimmed its;
    CHECK(its.look() == 0);
    for (int i = 0; i != 2; ++i) {
        its.on_worker(1, [](WorkerContext& worker) { worker.budget.charge(2 * Budget::burst); });
        CHECK(its.look() == 0);
        CHECK(its.look() == 0);
        its.on_worker(1, [](WorkerContext& worker) { worker.budget.discharge(2 * Budget::burst); });
        CHECK(its.look() == 1);
        CHECK(its.look() == 0);
    }
}

TEST_CASE("heap: trimmed once after many connections have ended") {
    Trimmed its;
    const ExportRegistry none;
    const SessionLimits limits{.handshake = std::chrono::hours(1)};
    std::vector<int> clients;
    const auto connect = [&](std::uint32_t count) {
        for (std::uint32_t i = 0; i != count; ++i) {
            int both[2];
            REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
            its.workers[i % 2]->serve(OwnedFd(both[1]), {}, none, limits);
            clients.push_back(both[0]);
        }
    };
    const auto leave = [&](std::uint32_t count) {
        const auto left = static_cast<std::uint32_t>(clients.size()) - count;
        for (; clients.size() != left; clients.pop_back()) ::close(clients.back());
        while (its.workers[0]->connections() + its.workers[1]->connections() != left) {
            std::this_thread::yield();
        }
    };
    connect(2 * HeapTrim::connections_of_a_burst);
    CHECK(its.look() == 0);
    leave(HeapTrim::connections_of_a_burst - 1);
    CHECK(its.look() == 0);
    leave(1);
    CHECK(its.look() == 1);
    CHECK(its.look() == 0);
    leave(HeapTrim::connections_of_a_burst);
    CHECK(its.look() == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
