#include "server/daemon/run_command.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

int wait_for(CaptiveCommand& command) {
    int status = -1;
    while (!command.ended(status)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK_FALSE(command.ended(status));  // the end is reported once
    return status;
}

int run(const std::string& text, const std::string& name = {}) {
    CaptiveCommand command;
    command.start(text, name);
    return wait_for(command);
}

TEST_CASE("captive command: the status that a shell would report") {
    const std::pair<const char*, int> rows[] = {
        {"true", 0},
        {"false", 1},
        {"exit 3", 3},
        {"exit 255", 255},
        {"kill -TERM $$", 128 + SIGTERM},
        {"kill -KILL $$", 128 + SIGKILL},
        {"/no/such/program 2>/dev/null", 127},
        {"", 0},
    };
    for (const auto& [command, status] : rows) {
        CAPTURE(command);
        CHECK(run(command) == status);
    }
}

TEST_CASE("captive command: finds the server by its environment") {
    CaptiveCommand command;
    ::setenv("want", command.socket_path().c_str(), 1);
    // For example from an outer server with --run.
    ::setenv("uri", "nbd://elsewhere", 1);
    ::setenv("unixsocket", "/elsewhere", 1);
    command.start(
        "[ \"$unixsocket\" = \"$want\" ] && [ \"$uri\" = \"nbd+unix:///a%20b%3F?socket=$want\" ] &&"
        " [ $(env | grep -c '^uri=') = 1 ] && [ $(env | grep -c '^unixsocket=') = 1 ]",
        "a b?");
    CHECK(wait_for(command) == 0);
    for (const char* name : {"want", "uri", "unixsocket"}) ::unsetenv(name);
}

TEST_CASE("captive command: default signal handling, independent of this process") {
    sigset_t blocked;
    sigset_t before;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
    auto* const pipe_before = ::signal(SIGPIPE, SIG_IGN);
    CHECK(run("kill -TERM $$; exit 5") == 128 + SIGTERM);
    CHECK(run("kill -PIPE $$; exit 5") == 128 + SIGPIPE);
    ::signal(SIGPIPE, pipe_before);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("captive command: terminate() sends SIGTERM") {
    CaptiveCommand command;
    int status = -1;
    command.terminate();  // no command yet
    CHECK_FALSE(command.ended(status));
    command.start(
        "trap 'exit 7' TERM; : > " + command.socket_path() + "; while :; do sleep 0.01; done", "");
    struct stat ready {};
    while (::stat(command.socket_path().c_str(), &ready) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK_FALSE(command.ended(status));
    command.terminate();
    CHECK(wait_for(command) == 7);
}

// Together with its child processes, even if they ignore SIGTERM.
TEST_CASE("captive command: kill() kills all its processes") {
    int reader[2];
    REQUIRE(::pipe(reader) == 0);
    {
        CaptiveCommand command;
        command.start("trap '' TERM; (sleep 600) & echo >&" + std::to_string(reader[1]) + "; wait",
                      "");
        ::close(reader[1]);
        char line = 0;
        REQUIRE(::read(reader[0], &line, 1) == 1);
        command.terminate();
        int status = -1;
        CHECK_FALSE(command.ended(status));
        CHECK(command.kill() == 128 + SIGKILL);
        CHECK_FALSE(command.running());
        CHECK_FALSE(command.ended(status));
        // All processes have closed the pipe, so none remains.
        CHECK(::read(reader[0], &line, 1) == 0);
    }
    ::close(reader[0]);
}

// A child process of the program that this process executed before.
TEST_CASE("captive command: the end of another child is ignored") {
    CaptiveCommand command;
    const pid_t other = ::fork();
    if (other == 0) ::_exit(9);
    int status = -1;
    CHECK_FALSE(command.ended(status));
    CHECK(::waitpid(other, &status, 0) == other);
    CHECK_FALSE(command.ended(status));
}

TEST_CASE("captive command: its directory is private and is removed with it") {
    std::string directory;
    {
        const CaptiveCommand command;
        directory = command.socket_path().substr(0, command.socket_path().rfind('/'));
        std::ofstream(command.socket_path()) << "x";
        struct stat status {};
        REQUIRE(::stat(directory.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0700);
    }
    CHECK(::access(directory.c_str(), F_OK) != 0);
    const char* const before = std::getenv("TMPDIR");
    const std::string kept = before == nullptr ? "" : before;
    ::setenv("TMPDIR", "/no/such/directory", 1);
    CHECK_THROWS_AS(CaptiveCommand(), std::runtime_error);
    if (before != nullptr) {
        ::setenv("TMPDIR", kept.c_str(), 1);
    } else {
        ::unsetenv("TMPDIR");
    }
}

}  // namespace
}  // namespace gpunbd::server::test
