// Starting the process that is to serve next fails at each allocation, and leaks neither a
// descriptor nor a process.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "server/handover/upgrade.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/server/handover/kept_rig.hpp"
#include "tests/storage/open_files.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// A program that ends at once and takes no message.
SuccessorStart ends_at_once() {
    SuccessorStart start;
    start.program = "/bin/true";
    return start;
}

// `round` makes the call that its argument gets.
void fail_at_each_allocation(const std::function<void(const failing_allocation::Failing&)>& round) {
    // A process that has not started its program has a copy of the end that is written to.
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const OwnedFd unwritten(ends[0]);
    OwnedFd writable(ends[1]);
    failing_allocation::in_turn({1}, [&](const auto& fails) {
        const std::size_t files = storage::test::open_files();
        round(fails);
        CHECK(storage::test::open_files() == files);
    });
    writable = OwnedFd();
    pollfd no_process{.fd = unwritten.get(), .events = 0, .revents = 0};
    CHECK(::poll(&no_process, 1, 120'000) == 1);
}

TEST_CASE("successor: its start fails at each allocation, and leaks nothing") {
    const SuccessorStart options = ends_at_once();
    fail_at_each_allocation([&](const auto& fails) {
        std::optional<Successor> successor;
        fails([&] { successor.emplace(options); });
    });
}

class NoDevices final : public LocalDevices {
    void pause_requests() override {}
    bool paused() const override { return true; }
    void resume_requests() override {}
};

TEST_CASE("upgrade: its start fails at each allocation, and leaks nothing") {
    LivingSupervisor supervisor;
    Life server(supervisor);
    const std::vector<std::unique_ptr<Worker>> workers;
    const std::vector<std::unique_ptr<Listener>> listeners;
    NoDevices devices;
    const SuccessorStart options = ends_at_once();
    fail_at_each_allocation([&](const auto& fails) {
        boost::asio::io_context io;
        Upgrade upgrade({.io = io,
                         .workers = workers,
                         .listeners = listeners,
                         .contents = server.contents,
                         .devices = devices,
                         .supervisor = supervisor.way});
        fails([&] {
            Task<> run = upgrade.run(options, {});
            run.start();  // an exception later is dropped
        });
    });
}

}  // namespace
}  // namespace gpunbd::server::test
