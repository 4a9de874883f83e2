#include "server/keeping/restart_policy.hpp"

#include <doctest/doctest.h>

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Moment = RestartPolicy::Clock::time_point;

TEST_CASE("restarts: at once where the server had been ready, later and later where not") {
    RestartPolicy policy(100, 1h);
    const Moment start{1h};
    for (int i = 0; i != 3; ++i) CHECK(policy.after_death(start, true) == 0ms);
    const std::chrono::milliseconds delays[] = {0ms,    100ms,  200ms,  400ms, 800ms,
                                                1600ms, 3200ms, 6400ms, 6400ms};
    for (const auto& delay : delays) CHECK(policy.after_death(start, false) == delay);
    CHECK(policy.after_death(start, true) == 0ms);
    CHECK(policy.after_death(start, false) == 0ms);
    CHECK(policy.after_death(start, false) == 100ms);
}

TEST_CASE("restarts: so many within a time, which moves on") {
    RestartPolicy policy(3, 10s);
    CHECK(policy.after_death(Moment{0s}, true));
    CHECK(policy.after_death(Moment{4s}, true));
    CHECK(policy.after_death(Moment{8s}, true));
    CHECK_FALSE(policy.after_death(Moment{9s}, true));
    CHECK(policy.after_death(Moment{10s}, true));
    CHECK_FALSE(policy.after_death(Moment{13s}, true));
    CHECK(policy.after_death(Moment{14s}, true));
    CHECK(policy.after_death(Moment{100s}, true));
}

TEST_CASE("restarts: somebody has set it right, and all begins again") {
    RestartPolicy policy(2, 1h);
    CHECK(policy.after_death(Moment{}, false) == 0ms);
    CHECK(policy.after_death(Moment{}, false) == 100ms);
    CHECK_FALSE(policy.after_death(Moment{}, false));
    policy.forget();
    CHECK(policy.after_death(Moment{}, false) == 0ms);
    CHECK(policy.after_death(Moment{}, false) == 100ms);
    CHECK_FALSE(policy.after_death(Moment{}, false));
}

}  // namespace
}  // namespace gpunbd::server::test
