#include "server/net/listener.hpp"

#include <cerrno>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("accept failures: one line a minute, with the number of omitted ones") {
    AcceptFailures failures;
    const AcceptFailures::Clock::time_point start{};
    const auto first = failures.text(EMFILE, start);
    REQUIRE(first);
    CHECK(first->starts_with(
        "cannot accept clients, which wait: Too many open files; lower limits.connections, or "
        "raise the limit of open files by LimitNOFILE="));
    // A listener calls accept() ten times a second.
    for (int i = 1; i != 600; ++i) {
        CHECK_FALSE(failures.text(EMFILE, start + std::chrono::milliseconds(100) * i));
    }
    const auto second = failures.text(ENFILE, start + AcceptFailures::interval);
    REQUIRE(second);
    CHECK(*second ==
          "cannot accept clients, which wait: Too many open files in system (599 more times since "
          "the last line); raise the machine's limit of open files: sysctl fs.file-max");
    CHECK_FALSE(failures.text(EMFILE, start + AcceptFailures::interval));
}

}  // namespace
}  // namespace gpunbd::server::test
