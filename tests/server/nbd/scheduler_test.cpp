#include "server/nbd/scheduler.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

class AlwaysReady final : public Scheduler::Runnable {
 public:
    AlwaysReady(Scheduler& scheduler, std::int64_t work) : scheduler_(scheduler), work_(work) {
        Scheduler::may_be_light(*this);
    }
    void run() noexcept override {
        scheduler_.count(*this, work_);
        scheduler_.run_soon(*this);
        ++turns;
    }

    std::uint64_t turns = 0;

 private:
    Scheduler& scheduler_;
    const std::int64_t work_;
};

TEST_CASE("scheduler: a task that is always ready does not starve the copies of others") {
    for (const std::int64_t work : {std::int64_t{0}, Scheduler::turn}) {
        CAPTURE(work);
        Rig rig;
        std::optional<AlwaysReady> always_ready;
        Client client = rig.enter();
        rig.on_worker_with([&](WorkerContext& its) {
            always_ready.emplace(its.scheduler, work);
            its.scheduler.run_soon(*always_ready);
        });
        CHECK(client.ask({CommandType::write, 0, 4 * kib}).error == Error::none);
        CHECK(client.ask({CommandType::read, 0, 4 * kib}).error == Error::none);
        rig.on_worker([&] { always_ready.reset(); });
        rig.check_clean(client);
    }
}

TEST_CASE("scheduler: only a task that had all recent turns alone gets longer turns") {
    Rig rig;
    rig.on_worker_with([](WorkerContext& its) {
        Scheduler& scheduler = its.scheduler;
        const AlwaysReady busy(scheduler, 0);
        const AlwaysReady rare(scheduler, 0);
        const auto lone_turns = [&](int turns) {
            int lone = 0;
            for (int i = 0; i != turns; ++i) {
                lone += scheduler.turn_of(busy) == Scheduler::lone_turn ? 1 : 0;
            }
            return lone;
        };
        CHECK(lone_turns(10) == 0);
        CHECK(lone_turns(10'000) > 9'000);
        for (int i = 0; i != 100; ++i) {  // the client waits for each reply
            CHECK(scheduler.turn_of(rare) == Scheduler::turn);
            CHECK(lone_turns(20) == 0);
        }
        CHECK(lone_turns(10'000) > 9'000);
    });
}

// A scheduler that the test turns, and sixteen tasks that are always ready, each with long turns.
struct Crowd {
    static constexpr std::size_t size = 16;

    Crowd() {
        for (std::size_t i = 0; i != size; ++i) {
            tasks.push_back(std::make_unique<AlwaysReady>(scheduler, Scheduler::turn));
            scheduler.run_soon(*tasks.back());
        }
    }
    std::uint64_t turns() const {
        std::uint64_t turns = 0;
        for (const auto& task : tasks) turns += task->turns;
        return turns;
    }

    boost::asio::io_context io;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard{
        io.get_executor()};
    storage::Channels channels{storage::ChannelOptions()};
    Scheduler scheduler{io, channels};
    std::vector<std::unique_ptr<AlwaysReady>> tasks;
};

// A client that waits for each reply: its next request arrives after its turn.
class Waiting final : public Scheduler::Runnable {
 public:
    explicit Waiting(Crowd& crowd) : crowd_(crowd) {}
    void run() noexcept override {
        turns_of_others = crowd_.turns() - turns_before_;
        crowd_.scheduler.count(*this, work);
        ++turns;
        send();
    }
    void send() {
        turns_before_ = crowd_.turns();
        boost::asio::post(crowd_.io, [this] { crowd_.scheduler.run_at_event(*this); });
    }
    void turn_until(std::uint64_t least_turns) {
        while (turns < least_turns) crowd_.scheduler.round();
    }

    std::int64_t work = 6 * 1024;
    std::uint64_t turns = 0;
    std::uint64_t turns_of_others = 0;  // since the last request arrived

 private:
    Crowd& crowd_;
    std::uint64_t turns_before_ = 0;
};

TEST_CASE("scheduler: a connection with little work waits for one turn of others at most") {
    Crowd crowd;
    Waiting light(crowd);
    Scheduler::may_be_light(light);
    light.send();
    light.turn_until(100);
    for (std::uint64_t i = 1; i != 1000; ++i) {
        light.turn_until(100 + i);
        REQUIRE(light.turns_of_others <= 1);
    }
    SUBCASE("and loses that with its first long turn") {
        light.work = Scheduler::turn;
        light.turn_until(light.turns + 2);
        CHECK(light.turns_of_others >= Crowd::size - 1);
        SUBCASE("until it has had short turns for a while") {
            light.work = 6 * 1024;
            while (light.turns_of_others > 1) light.turn_until(light.turns + 1);
        }
    }
}

TEST_CASE("scheduler: a client that negotiates waits like all others") {
    Crowd crowd;
    Waiting light(crowd);
    Scheduler::may_be_light(light);
    light.send();
    Waiting negotiating(crowd);
    negotiating.send();
    negotiating.turn_until(50);
    CHECK(negotiating.turns_of_others >= Crowd::size - 1);
}

TEST_CASE("scheduler: a connection with more than its share in short turns has no priority") {
    Crowd crowd;
    AlwaysReady greedy(crowd.scheduler, 20 * 1024);
    crowd.scheduler.run_soon(greedy);
    const auto turn_for = [&](std::uint64_t turns) {
        for (const std::uint64_t end = crowd.turns() + turns; crowd.turns() < end;) {
            crowd.scheduler.round();
        }
    };
    turn_for(10'000);
    const std::uint64_t before = greedy.turns;
    turn_for(10'000);
    // An equal share would be the work of 625 turns of the others.
    CHECK((greedy.turns - before) * (20 + 4) < 2 * 625 * (256 + 4));
    CHECK(greedy.turns > before);
}

class Handshake final : public Scheduler::Runnable {
 public:
    void run() noexcept override { ++turns; }

    int turns = 0;
};

TEST_CASE("scheduler: a handshake waits for its long turn, or is destroyed meanwhile") {
    Crowd crowd;
    Scheduler& scheduler = crowd.scheduler;
    Handshake first;
    auto second = std::make_unique<Handshake>();
    scheduler.run_soon(*second);
    for (Handshake* each : {&first, second.get()}) scheduler.run_once_a_round(*each);
    // The client hangs up.
    boost::asio::post(crowd.io, [&] { scheduler.run_at_event(*second); });
    scheduler.round();
    CHECK(first.turns == 1);
    CHECK(second->turns == 0);
    SUBCASE("waits") {
        scheduler.round();
        CHECK(second->turns == 1);
        boost::asio::post(crowd.io, [&] { scheduler.run_at_event(*second); });
        while (second->turns != 2) scheduler.round();
    }
    SUBCASE("is destroyed") {
        bool destroyed = false;
        boost::asio::post(crowd.io, [&] {
            second.reset();
            destroyed = true;
        });
        while (!destroyed) scheduler.round();
    }
    CHECK(first.turns == 1);
}

// Events come from the test's thread, which wakes the worker if the source wants that.
class SimulatedSource final : public Scheduler::Source {
 public:
    bool handle() noexcept override {
        if (!pending_.exchange(false)) return false;
        ++handled;
        return true;
    }
    void set_wakes(bool wakes) noexcept override { wakes_ = wakes; }
    // Returns true if the worker has to be woken.
    bool send() {
        pending_ = true;
        return wakes_;
    }

    std::atomic<int> handled{0};

 private:
    std::atomic<bool> pending_{false};
    std::atomic<bool> wakes_{false};
};

TEST_CASE("scheduler: no event of a source is lost, however the worker blocks") {
    Rig rig;
    SimulatedSource source;
    rig.on_worker_with([&](WorkerContext& its) { its.scheduler.add(source); });
    constexpr int events = 2000;
    for (int sent = 1; sent <= events; ++sent) {
        if (source.send()) rig.worker.post([](WorkerContext&) {});
        while (source.handled != sent) std::this_thread::yield();
    }
    rig.on_worker([&] { source.unlink(); });
}

}  // namespace
}  // namespace gpunbd::server::test
