#include "storage/devices/gpu/gpu_channel.hpp"

#include <doctest/doctest.h>

namespace gpunbd::storage::test {
namespace {

const Competition::Clock::time_point first_look =
    Competition::Clock::time_point{} + std::chrono::hours(1);
constexpr Competition::Clock::duration half_slow = Competition::slow / 2;

TEST_CASE("slow kernels: reported if none has ended for a time, and again after the same time") {
    SlowKernels kernels;
    CHECK_FALSE(kernels.seen(true, first_look));
    CHECK_FALSE(kernels.seen(false, first_look + half_slow));
    CHECK(kernels.seen(false, first_look + 2 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 3 * half_slow));
    CHECK(kernels.seen(false, first_look + 4 * half_slow));
}

TEST_CASE("slow kernels: each end of a kernel restarts the time") {
    SlowKernels kernels;
    CHECK_FALSE(kernels.seen(true, first_look));
    kernels.ended();
    CHECK_FALSE(kernels.seen(false, first_look + 2 * half_slow));
    kernels.ended();
    kernels.ended();
    CHECK_FALSE(kernels.seen(false, first_look + 4 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 5 * half_slow));
    CHECK(kernels.seen(false, first_look + 6 * half_slow));
}

TEST_CASE("slow kernels: none is reported without kernels in flight") {
    SlowKernels kernels;
    for (int i = 0; i != 10; ++i) CHECK_FALSE(kernels.seen(true, first_look + i * 2 * half_slow));
    CHECK_FALSE(kernels.seen(false, first_look + 19 * half_slow));
}

}  // namespace
}  // namespace gpunbd::storage::test
