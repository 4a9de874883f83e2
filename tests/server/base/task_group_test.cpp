#include "server/base/task_group.hpp"

#include <new>

#include "server/base/task.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Lines = std::vector<std::string>;

Task<> wait(Awaited<std::string> value, Lines* lines, std::shared_ptr<int> /*held*/) {
    lines->push_back("waits");
    lines->push_back(co_await value);
}

Task<> fail(Awaited<> value) {
    co_await value;
    throw std::bad_alloc();
}

Task<> call_what_fails(Awaited<> value, std::size_t* running) {
    const Counted counted(*running);
    co_await fail(std::move(value));
}

TEST_CASE("task group: a task runs until it waits, and continues on the thread of the loop") {
    boost::asio::io_context io;
    TaskGroup tasks(io);
    Awaited<std::string> value(io);
    Lines lines;
    const auto give = value.giver();
    tasks.start(wait(std::move(value), &lines, nullptr));
    CHECK(lines == Lines{"waits"});
    SUBCASE("a value of another thread") {
        std::thread([give] { give("value"); }).join();
    }
    SUBCASE("a value that needs no memory but its own") {
        std::string text(100, 'x');
        failing_allocation::take_part();
        failing_allocation::arm(1, 1);
        give(std::move(text));
        CHECK_FALSE(failing_allocation::disarm());
    }
    CHECK(lines.size() == 1);
    io.run();
    CHECK(lines.size() == 2);
}

TEST_CASE("task group: a coroutine that waits is destroyed with its group, and ends no other") {
    boost::asio::io_context io;
    std::optional<TaskGroup> tasks(io);
    TaskGroup others(io);
    Awaited<std::string> value(io);
    Awaited<std::string> other(io);
    Lines lines;
    const auto give = value.giver();
    const auto give_other = other.giver();
    const auto held = std::make_shared<int>();
    tasks->start(wait(std::move(value), &lines, held));
    others.start(wait(std::move(other), &lines, held));
    CHECK(held.use_count() == 3);
    SUBCASE("before the value") { tasks.reset(); }
    SUBCASE("after the value") {
        give("value");
        tasks->clear();
    }
    CHECK(held.use_count() == 2);
    io.run();
    CHECK(lines == Lines{"waits", "waits"});
    give_other("other");
    io.restart();
    io.run();
    CHECK(lines.back() == "other");
    CHECK(held.use_count() == 1);
}

TEST_CASE("task group: a value for a wait that is gone is dropped") {
    boost::asio::io_context io;
    std::optional<Awaited<std::shared_ptr<int>>> value(io);
    const auto give = value->giver();
    const auto held = std::make_shared<int>();
    value.reset();
    give(held);
    io.run();
    CHECK(held.use_count() == 1);
}

TEST_CASE("task group: the loop throws the exception of a task") {
    boost::asio::io_context io;
    TaskGroup tasks(io);
    Awaited<> value(io);
    std::size_t running = 0;
    const auto give = value.giver();
    tasks.start(call_what_fails(std::move(value), &running));
    CHECK(running == 1);
    give();
    CHECK_THROWS_AS(io.run(), std::bad_alloc);
    CHECK(running == 0);
}

TEST_CASE("loop calls: a call is dropped with its object") {
    boost::asio::io_context io;
    std::optional<LoopCalls> calls(io);
    int made = 0;
    calls->post([&] { ++made; });
    CHECK(made == 0);
    io.run();
    CHECK(made == 1);
    calls->post([&] { ++made; });
    calls.reset();
    io.restart();
    io.run();
    CHECK(made == 1);
}

}  // namespace
}  // namespace gpunbd::server::test
