#include "server/listening/socket_activation.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace gpunbd::server::test {
namespace {

// In a process of its own, with descriptors 3 and 4 as a service manager would give them.
// "PID" in `pid` is that of the process. The number of sockets taken; `refused`; 100 and more: an
// error.
constexpr int refused = 99;

int taken(const char* pid, const char* count) {
    const pid_t child = ::fork();
    if (child == 0) {
        const int file = ::open("/dev/null", O_RDONLY);
        if (file > 4) ::close(3), ::close(4);
        for (const int fd : {3, 4}) {
            if (file != fd) ::dup2(file, fd);
            ::fcntl(fd, F_SETFD, 0);
        }
        ::setenv("LISTEN_FDNAMES", "a:b", 1);
        if (pid != nullptr) {
            const std::string text(pid);
            ::setenv("LISTEN_PID", (text == "PID" ? std::to_string(::getpid()) : text).c_str(), 1);
        } else {
            ::unsetenv("LISTEN_PID");
        }
        count != nullptr ? ::setenv("LISTEN_FDS", count, 1) : ::unsetenv("LISTEN_FDS");
        std::vector<int> sockets;
        try {
            sockets = take_inherited_sockets();
        } catch (const std::runtime_error& error) {
            const std::string what = error.what();
            const bool clear = what.starts_with("LISTEN_") && what.find('\n') == what.npos;
            ::_exit(clear ? refused : 104);
        }
        for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) {
            if (std::getenv(name) != nullptr) ::_exit(100);
        }
        for (std::size_t i = 0; i != sockets.size(); ++i) {
            if (sockets[i] != static_cast<int>(3 + i)) ::_exit(101);
            if (i < 2 && ::fcntl(sockets[i], F_GETFD) != FD_CLOEXEC) ::_exit(102);
        }
        if (!take_inherited_sockets().empty()) ::_exit(103);
        ::_exit(static_cast<int>(sockets.size()));
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST_CASE("socket activation: what the environment says") {
    const struct {
        const char* pid;
        const char* count;
        int sockets;
    } rows[] = {
        {"PID", "1", 1},
        {"PID", "2", 2},
        {"PID", "64", 64},
        // Whoever says such a thing meant to hand sockets over.
        {"PID", "65", refused},
        {"PID", "0", refused},
        {"PID", "-1", refused},
        {"PID", "", refused},
        {"PID", "2x", refused},
        {"PID", " 2", refused},
        {"PID", "+2", refused},
        {"PID", "0x2", refused},
        {"PID", "99999999999999999999", refused},
        {"", "2", refused},
        {"x", "2", refused},
        {"99999999999999999999", "2", refused},
        // For another process, or for none.
        {"1", "2", 0},
        {"1", "x", 0},
        {nullptr, "2", 0},
        {nullptr, "x", 0},
        {"PID", nullptr, 0},
        {nullptr, nullptr, 0},
    };
    for (const auto& row : rows) {
        CAPTURE((row.pid == nullptr ? "unset" : row.pid));
        CAPTURE((row.count == nullptr ? "unset" : row.count));
        CHECK(taken(row.pid, row.count) == row.sockets);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
