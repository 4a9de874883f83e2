#include "storage/assertions/assert.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/test.hpp"

namespace gpunbd {

TEST_CASE("assertions: one that fails prints its sentence and its place, and ends the process") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        std::signal(SIGABRT, SIG_DFL);  // doctest's handler would report a failed test
        fail_assertion("a page has one owner", "owner == this", "storage/pages/example.cpp", 12);
    }
    ::close(ends[1]);
    std::string text(1024, '\0');
    const ssize_t length = ::read(ends[0], text.data(), text.size());
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    text.resize(static_cast<std::size_t>(length));
    CHECK(text ==
          "gpunbd: storage/pages/example.cpp:12: assertion failed: a page has one owner (owner == "
          "this)\n");
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("assertions: release builds do not evaluate the condition") {
    bool evaluated = false;
    GPUNBD_ASSERT((evaluated = true), "the condition is true");
#if defined(GPUNBD_ASSERTIONS)
    CHECK(evaluated);
#else
    CHECK_FALSE(evaluated);
#endif
}

}  // namespace gpunbd
