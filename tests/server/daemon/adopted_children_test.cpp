#include "server/daemon/housekeeping.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace gpunbd::server::test {
namespace {

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

}  // namespace
}  // namespace gpunbd::server::test
