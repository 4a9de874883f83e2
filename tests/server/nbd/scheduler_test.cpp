#include "server/nbd/scheduler.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/server/rig.hpp"

namespace gpunbd::server::test {
namespace {

class AlwaysReady final : public Scheduler::Runnable {
 public:
    AlwaysReady(Scheduler& scheduler, bool in_turn) : scheduler_(scheduler), in_turn_(in_turn) {}
    void run() noexcept override {
        if (in_turn_) {
            scheduler_.run_in_turn(*this);
        } else {
            scheduler_.run_soon(*this);
        }
    }

 private:
    Scheduler& scheduler_;
    bool in_turn_;
};

TEST_CASE("scheduler: a task that is always ready does not starve the copies of others") {
    for (const bool in_turn : {false, true}) {
        CAPTURE(in_turn);
        Rig rig;
        std::optional<AlwaysReady> always_ready;
        Client client = rig.enter();
        rig.on_worker_with([&](WorkerContext& its) {
            always_ready.emplace(its.scheduler, in_turn);
            always_ready->run();
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
        const AlwaysReady busy(scheduler, false);
        const AlwaysReady rare(scheduler, false);
        const auto lone_turns = [&](int turns) {
            int lone = 0;
            for (int i = 0; i != turns; ++i) lone += scheduler.begins_lone_turn(busy) ? 1 : 0;
            return lone;
        };
        CHECK(lone_turns(10) == 0);
        CHECK(lone_turns(10'000) > 9'000);
        for (int i = 0; i != 100; ++i) {  // the client waits for each reply
            CHECK_FALSE(scheduler.begins_lone_turn(rare));
            CHECK(lone_turns(20) == 0);
        }
        CHECK(lone_turns(10'000) > 9'000);
    });
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
