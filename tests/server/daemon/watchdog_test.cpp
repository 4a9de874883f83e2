#include "server/daemon/supervision.hpp"

#include <unistd.h>

#include <latch>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using std::chrono::microseconds;

constexpr std::uint64_t little_memory = 1 << 20;

// Workers, each on a thread of its own.
struct WatchedWorkers {
    explicit WatchedWorkers(int count) {
        for (int i = 0; i != count; ++i) {
            all.push_back(
                std::make_unique<Worker>(storage::ChannelOptions{}, little_memory, false));
            threads.emplace_back([worker = all.back().get()] { worker->run(); });
        }
    }
    ~WatchedWorkers() {
        for (const auto& worker : all) worker->stop();
        for (std::thread& thread : threads) thread.join();
    }
    // Waits until that worker has executed all posted functions.
    void catch_up(std::size_t which) {
        std::latch done(1);
        all[which]->post([&done](WorkerContext&) { done.count_down(); });
        done.wait();
    }

    Watchdog::Workers all;
    std::vector<std::thread> threads;
};

TEST_CASE("watchdog: one blocked worker stops the messages until it continues") {
    for (const std::size_t hung : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        CAPTURE(hung);
        WatchedWorkers workers(3);
        boost::asio::io_context io;
        Watchdog watchdog(io, microseconds(1), workers.all, [] {});
        CHECK(!watchdog.all_responded());  // nothing was posted yet
        for (std::size_t i = 0; i != 3; ++i) workers.catch_up(i);
        CHECK(watchdog.all_responded());
        for (std::size_t i = 0; i != 3; ++i) workers.catch_up(i);

        std::latch hangs(1);
        std::latch goes_on(1);
        workers.all[hung]->post([&](WorkerContext&) {
            hangs.count_down();
            goes_on.wait();
        });
        hangs.wait();
        CHECK(watchdog.all_responded());  // the responses to the previous call
        for (std::size_t i = 0; i != 3; ++i) {
            if (i != hung) workers.catch_up(i);
        }
        for (int look = 0; look != 3; ++look) CHECK(!watchdog.all_responded());
        goes_on.count_down();
        workers.catch_up(hung);
        CHECK(watchdog.all_responded());
    }
}

TEST_CASE("watchdog: notifies repeatedly, also without workers") {
    for (const int count : {0, 2}) {
        CAPTURE(count);
        WatchedWorkers workers(count);
        boost::asio::io_context io;
        int notified = 0;
        Watchdog watchdog(io, microseconds(4000), workers.all, [&] {
            if (++notified == 5) io.stop();
        });
        watchdog.start();
        watchdog.start();
        io.run();
        CHECK(notified == 5);
    }
}

TEST_CASE("watchdog: the process and the timeout in the environment") {
    const std::string own = std::to_string(::getpid());
    const auto patience = [](const char* time, const char* pid) {
        if (time != nullptr) ::setenv("WATCHDOG_USEC", time, 1);
        if (pid != nullptr) ::setenv("WATCHDOG_PID", pid, 1);
        const auto out = Watchdog::timeout_from_environment();
        CHECK(std::getenv("WATCHDOG_USEC") == nullptr);
        CHECK(std::getenv("WATCHDOG_PID") == nullptr);
        return out;
    };
    CHECK(patience(nullptr, nullptr) == std::nullopt);
    CHECK(patience(nullptr, own.c_str()) == std::nullopt);
    CHECK(patience("3000000", own.c_str()) == microseconds(3'000'000));
    CHECK(patience("3000000", nullptr) == microseconds(3'000'000));
    CHECK(patience("3000000", "1") == std::nullopt);
    CHECK(patience("3000000", "x") == std::nullopt);
    for (const char* time : {"0", "", "-1", "x", "99999999999999999999"}) {
        CAPTURE(time);
        CHECK_THROWS_WITH_AS(patience(time, nullptr),
                             doctest::Contains("is not a time in microseconds; unset it"),
                             std::runtime_error);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
