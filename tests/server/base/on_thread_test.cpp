#include "server/base/task_group.hpp"

#include <boost/asio/post.hpp>

#include "tests/server/failing_allocation.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

struct Thread {
    boost::asio::io_context io;
    std::stop_source stop;
    std::vector<std::string> ended;
    std::optional<TaskGroup> tasks{io};
};

Task<> run(Thread* rig, OnThread::Work work) {
    try {
        OnThread thread(rig->io, "test", rig->stop, work);
        co_await thread;
        rig->ended.push_back("");
    } catch (const std::exception& error) {
        rig->ended.push_back(error.what());
    }
}

TEST_CASE("on thread: the loop handles events meanwhile, and runs until the end") {
    Thread rig;
    std::promise<void> gate;
    std::thread::id called;
    rig.tasks->start(run(&rig, [&](const std::stop_token&) {
        gate.get_future().wait();
        called = std::this_thread::get_id();
    }));
    CHECK(rig.io.poll() == 0);
    boost::asio::post(rig.io, [&] { gate.set_value(); });
    rig.io.run();
    CHECK(rig.ended == std::vector<std::string>{""});
    CHECK(called != std::this_thread::get_id());
}

TEST_CASE("on thread: a failure is thrown on the thread of the loop, even without memory") {
    Thread rig;
    const std::string why = "a reason that is too long to be reported without an allocation";
    rig.tasks->start(run(&rig, [&](const std::stop_token&) {
        const std::runtime_error error(why);
        failing_allocation::take_part();
        failing_allocation::arm(1, 5);
        throw error;
    }));
    rig.io.run();
    failing_allocation::disarm();
    CHECK(rig.ended == std::vector{why});
}

TEST_CASE("on thread: the function sees a request to stop") {
    Thread rig;
    const auto wait = [](const std::stop_token& stop) {
        while (!stop.stop_requested()) std::this_thread::yield();
    };
    rig.tasks->start(run(&rig, wait));
    rig.stop.request_stop();
    rig.io.run();
    CHECK(rig.ended.size() == 1);
}

TEST_CASE("on thread: destroying the coroutine stops the function and waits for it") {
    Thread rig;
    std::atomic<bool> begun{false};
    bool stopped = false;
    rig.tasks->start(run(&rig, [&](const std::stop_token& stop) {
        begun = true;
        while (!stop.stop_requested()) std::this_thread::yield();
        stopped = true;
    }));
    while (!begun) std::this_thread::yield();
    rig.tasks.reset();
    CHECK(stopped);
    rig.io.run();
    CHECK(rig.ended.empty());
}

}  // namespace
}  // namespace gpunbd::server::test
