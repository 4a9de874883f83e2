#include "server/daemon/housekeeping.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/server/rig.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

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

namespace fs = std::filesystem;

using gpunbd::test::TemporaryFolder;

long files_in(const TemporaryFolder& folder) {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

std::string complaint(const std::string& path) {
    return error_of([&] { PidFile(path).open(); });
}

TEST_CASE("pidfile: exists from its publication until the end, without other files") {
    const TemporaryFolder folder;
    const std::string path = folder.path("pid");
    {
        PidFile pidfile(path);
        pidfile.open();
        CHECK_FALSE(fs::exists(path));
        pidfile.start();
        CHECK(folder.read("pid") == std::to_string(::getpid()) + "\n");
        struct stat status {};
        REQUIRE(::stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0644);
        CHECK(files_in(folder) == 1);
    }
    CHECK(files_in(folder) == 0);
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(files_in(folder) == 0);
}

TEST_CASE("pidfile: an old file is replaced, another server's file stays") {
    const TemporaryFolder folder;
    const std::string path = folder.path("pid");
    folder.write("pid", "1\n");
    {
        PidFile never_published(path);
        never_published.open();
    }
    CHECK(folder.read("pid") == "1\n");
    {
        PidFile pidfile(path);
        pidfile.open();
        pidfile.start();
        CHECK(folder.read("pid") == std::to_string(::getpid()) + "\n");
        folder.write("pid", "2\n");
    }
    CHECK(folder.read("pid") == "2\n");
}

TEST_CASE("pidfile: paths that cannot be used, with the reasons") {
    const TemporaryFolder folder;
    CHECK(complaint(folder.path()) ==
          "--pidfile " + folder.path() + ": exists and is not a regular file; choose another path");
    CHECK(contains(complaint("/dev/null"), "is not a regular file"));
    CHECK(contains(complaint(folder.path("no/pid")),
                   "the folder " + folder.path() + "/no does not exist; create it"));
    folder.write("file", "x");
    CHECK(contains(complaint(folder.path("file/pid")), "/file is not a folder"));
    CHECK(files_in(folder) == 1);
}

// A child that has ended.
pid_t ended_child() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
    return child;
}

bool is_zombie(pid_t child) {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST_CASE("adopted children: those that no part of the process waits for are reaped") {
    boost::asio::io_context io;
    AdoptedChildren children(io);
    const std::vector<pid_t> orphans{ended_child(), ended_child(), ended_child()};
    const pid_t own = ended_child();
    children.check();
    for (const pid_t each : orphans) CHECK(is_zombie(each));
    CHECK(::waitpid(own, nullptr, 0) == own);  // the part that started it was not too late
    const pid_t later = ended_child();
    children.check();
    for (const pid_t each : orphans) CHECK_FALSE(is_zombie(each));
    CHECK(is_zombie(later));
    children.check();
    CHECK_FALSE(is_zombie(later));
}

void omit_line(LineLimit& limit) {
    const auto now = LineLimit::Clock::now();
    while (limit.take(now)) {
    }
}

TEST_CASE("OmittedLines: a line that is omitted before the stop starts no timer after it") {
    LineLimit limit;
    boost::asio::io_context io;
    std::optional<OmittedLines> lines(std::in_place, io, limit);
    lines->start();
    omit_line(limit);
    lines->stop();
    SUBCASE("stopped") {}
    SUBCASE("destroyed") { lines.reset(); }
    io.poll();
    CHECK(io.stopped());  // nothing is left to wait for
}

TEST_CASE("OmittedLines: the stop cancels the timer") {
    LineLimit limit;
    boost::asio::io_context io;
    OmittedLines lines(io, limit);
    lines.start();
    omit_line(limit);
    CHECK(io.poll_one() == 1);  // starts the timer; its expiry is a separate handler
    CHECK_FALSE(io.stopped());
    lines.stop();
    io.poll();
    CHECK(io.stopped());
}

}  // namespace
}  // namespace gpunbd::server::test
