// Starting the process that is to serve next fails at each allocation, and leaks neither a
// descriptor nor a process.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "server/handover/upgrade.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/open_files.hpp"

namespace gpunbd::server::test {
namespace {

// A program that ends at once and takes no message.
SuccessorStart ends_at_once() {
    SuccessorStart start;
    start.program = "/bin/true";
    return start;
}

template <typename Start>
void fail_at_each_allocation(Start start) {
    failing_allocation::take_part();
    // A process that has not started its program has a copy of the end that is written to.
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const OwnedFd unwritten(ends[0]);
    OwnedFd writable(ends[1]);
    bool failed = true;
    for (std::int64_t number = 1; failed; ++number) {
        CAPTURE(number);
        const std::size_t files = storage::test::open_files();
        failed = start(number);
        CHECK(storage::test::open_files() == files);
    }
    writable = OwnedFd();
    pollfd no_process{.fd = unwritten.get(), .events = 0, .revents = 0};
    CHECK(::poll(&no_process, 1, 120'000) == 1);
}

TEST_CASE("successor: its start fails at each allocation, and leaks nothing") {
    const SuccessorStart options = ends_at_once();
    fail_at_each_allocation([&](std::int64_t number) {
        std::optional<Successor> successor;
        failing_allocation::arm(number);
        try {
            successor.emplace(options);
        } catch (const std::bad_alloc&) {
        }
        return failing_allocation::disarm();
    });
}

class NoDevices final : public LocalDevices {
    void pause_requests() override {}
    bool paused() const override { return true; }
    void resume_requests() override {}
};

TEST_CASE("upgrade: its start fails at each allocation, and leaks nothing") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    Life server(supervisor, way);
    const std::vector<std::unique_ptr<Worker>> workers;
    const std::vector<std::unique_ptr<Listener>> listeners;
    NoDevices devices;
    const SuccessorStart options = ends_at_once();
    fail_at_each_allocation([&](std::int64_t number) {
        boost::asio::io_context io;
        Upgrade upgrade({.io = io,
                         .workers = workers,
                         .listeners = listeners,
                         .contents = server.contents,
                         .devices = devices,
                         .supervisor = way});
        failing_allocation::arm(number);
        try {
            Task<> run = upgrade.run(options, {});
            run.start();  // an exception later is dropped
        } catch (const std::bad_alloc&) {
        }
        return failing_allocation::disarm();
    });
}

}  // namespace
}  // namespace gpunbd::server::test
