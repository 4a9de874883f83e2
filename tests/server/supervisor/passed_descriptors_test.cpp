#include "server/supervisor/passed_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

// A child process with descriptors 3 to 6, as from a supervisor: a socket, a file, a socket, a
// file.
constexpr int made_no_sense = 99;
constexpr int second_socket = 5;

void open_descriptors() {
    ::close_range(3, ~0U, 0);
    for (int fd = 3; fd != 7; ++fd) {
        const int made = fd % 2 == 1 ? ::socket(AF_UNIX, SOCK_STREAM, 0) : ::memfd_create("x", 0);
        if (made != fd) ::_exit(120);
    }
}

void set_variable(const char* name, const char* value) {
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
}

// Returns the result of `look` in that process. "PID" in `pid` means the id of the process.
template <class Look>
int handed(const char* pid, const char* count, const char* names, Look look) {
    const pid_t child = ::fork();
    if (child == 0) {
        open_descriptors();
        const std::string own = std::to_string(::getpid());
        set_variable("LISTEN_PID", pid != nullptr && std::string(pid) == "PID" ? own.c_str() : pid);
        set_variable("LISTEN_FDS", count);
        set_variable("LISTEN_FDNAMES", names);
        ::setenv("LISTEN_PIDFDID", "1", 1);
        int result = 121;
        try {
            PassedDescriptors handed_over = PassedDescriptors::from_environment();
            for (const char* name :
                 {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"}) {
                if (std::getenv(name) != nullptr) ::_exit(100);
            }
            result = look(handed_over);
        } catch (const std::runtime_error& error) {
            const std::string what = error.what();
            const bool clear = what.starts_with("LISTEN_") && what.find('\n') == what.npos;
            result = clear ? made_no_sense : 104;
        }
        ::_exit(result);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST_CASE("inherited descriptors: the variables of the environment") {
    const struct {
        const char* pid;
        const char* count;
        const char* names;
        int descriptors;
    } rows[] = {
        {"PID", "1", nullptr, 1},
        {"PID", "4", nullptr, 4},
        {"PID", "2", "a:b", 2},
        {"PID", "2", ":", 2},
        {"PID", "1", "", 1},
        // Invalid values are errors, because descriptors were meant to be handed over.
        {"PID", "5", nullptr, made_no_sense},
        {"PID", "2", "a", made_no_sense},
        {"PID", "2", "a:b:c", made_no_sense},
        {"PID", "2", "", made_no_sense},
        {"PID", "0", nullptr, made_no_sense},
        {"PID", "-1", nullptr, made_no_sense},
        {"PID", "", nullptr, made_no_sense},
        {"PID", "2x", nullptr, made_no_sense},
        {"PID", " 2", nullptr, made_no_sense},
        {"PID", "+2", nullptr, made_no_sense},
        {"PID", "0x2", nullptr, made_no_sense},
        {"PID", "2147483647", nullptr, made_no_sense},
        {"PID", "99999999999999999999", nullptr, made_no_sense},
        {"", "2", nullptr, made_no_sense},
        {"x", "2", nullptr, made_no_sense},
        {"99999999999999999999", "2", nullptr, made_no_sense},
        // For another process, or for none.
        {"1", "2", nullptr, 0},
        {"1", "x", nullptr, 0},
        {nullptr, "2", nullptr, 0},
        {nullptr, "x", nullptr, 0},
        {"PID", nullptr, nullptr, 0},
        {nullptr, nullptr, "a", 0},
    };
    for (const auto& row : rows) {
        CAPTURE((row.pid == nullptr ? "unset" : row.pid));
        CAPTURE((row.count == nullptr ? "unset" : row.count));
        CAPTURE((row.names == nullptr ? "unset" : row.names));
        CHECK(handed(row.pid, row.count, row.names, [](PassedDescriptors& all) {
                  return static_cast<int>(all.names().size());
              }) == row.descriptors);
    }
}

TEST_CASE("inherited descriptors: found by name, once, and not inherited by child processes") {
    CHECK(handed("PID", "4", "web:gpunbd/a:gpunbd/b:gpunbd/a", [](PassedDescriptors& all) {
              const auto both = all.take("gpunbd/a");
              if (both.size() != 2 || both[0].get() != 4 || both[1].get() != 6) return 1;
              if (::fcntl(4, F_GETFD) != FD_CLOEXEC) return 2;
              if (!all.take("gpunbd/a").empty() || !all.take("gpunbd/").empty()) return 3;
              return all.names() == std::vector<std::string>{"gpunbd/b", "web"} ? 0 : 4;
          }) == 0);
}

TEST_CASE(
    "inherited descriptors: stored descriptors and files are not sockets of socket activation") {
    CHECK(handed("PID", "4", "z:y:gpunbd/socket:x", [](PassedDescriptors& all) {
              const auto sockets = all.take_sockets();
              if (sockets.size() != 1 || sockets[0].get() != 3) return 1;
              return all.take("gpunbd/socket")[0].get() == second_socket ? 0 : 2;
          }) == 0);
    CHECK(handed("PID", "4", "z:y:a:x", [](PassedDescriptors& all) {
              const auto sockets = all.take_sockets();  // in ascending order of their numbers
              return sockets.size() == 2 && sockets[0].get() == 3 && sockets[1].get() == 5 ? 0 : 1;
          }) == 0);
}

TEST_CASE(
    "inherited descriptors: the rest is closed at the end, and taken ones belong to the caller") {
    CHECK(handed("PID", "2", "a:b", [](PassedDescriptors& all) {
              auto taken = all.take("a");
              { const PassedDescriptors gone = std::move(all); }
              if (::fcntl(4, F_GETFD) != -1) return 1;
              return ::fcntl(3, F_GETFD) == FD_CLOEXEC ? 0 : 2;
          }) == 0);
}

}  // namespace
}  // namespace gpunbd::server::test
