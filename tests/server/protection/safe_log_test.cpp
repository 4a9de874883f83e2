#include "server/protection/protection.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/base/owned_fd.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("safe log: only a file in a tmpfs is unsafe") {
    const OwnedFd in_memory(::memfd_create("log", MFD_CLOEXEC));
    const auto why = why_log_may_hang(in_memory.get());
    REQUIRE(why);
    CHECK(contains(*why, "a file in a tmpfs"));

    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    const OwnedFd reader(ends[0]);
    const OwnedFd writer(ends[1]);
    CHECK_FALSE(why_log_may_hang(writer.get()));
    const OwnedFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));  // its device is in a tmpfs
    CHECK_FALSE(why_log_may_hang(nowhere.get()));
    const OwnedFd elsewhere(::open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
    CHECK_FALSE(why_log_may_hang(elsewhere.get()));
    CHECK_FALSE(why_log_may_hang(-1));  // closed: nothing is written
}

}  // namespace
}  // namespace gpunbd::server::test
