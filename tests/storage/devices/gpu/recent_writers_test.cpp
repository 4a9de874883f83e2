#include "storage/devices/gpu/gpu_channel.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The given number of threads write, each twice.
void note_from(std::size_t threads, Clock::time_point when) {
    std::vector<std::jthread> all;
    for (std::size_t i = 0; i != threads; ++i) {
        all.emplace_back([when] {
            count_writer(when);
            count_writer(when);
        });
    }
}

TEST_CASE("recent writers: each thread counts once in a period of two milliseconds") {
    const Clock::time_point at_start{std::chrono::hours(1)};  // the start of a period
    note_from(5, at_start);
    CHECK(count_writer(at_start + milliseconds(1)) == 0);  // no thread in the period before
    note_from(2, at_start + milliseconds(2));
    CHECK(count_writer(at_start + milliseconds(2)) == 6);
    CHECK(count_writer(at_start + milliseconds(3)) == 6);  // repeated calls return the same
    CHECK(count_writer(at_start + milliseconds(4)) == 3);
    CHECK(count_writer(at_start + milliseconds(6)) == 1);
    CHECK(count_writer(at_start + milliseconds(10)) ==
          0);  // periods without any thread have passed
}

TEST_CASE("recent writers: threads that begin a period at the same time are all counted") {
    constexpr std::size_t threads = 8;
    Clock::time_point now{std::chrono::hours(2)};
    for (int round = 0; round != 50; ++round, now += milliseconds(4)) {
        note_from(threads, now);
        CHECK(count_writer(now + milliseconds(2)) == threads);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
