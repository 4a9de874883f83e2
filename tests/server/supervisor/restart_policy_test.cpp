#include "server/supervisor/server_process.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using namespace std::chrono_literals;
using Moment = RestartPolicy::Clock::time_point;

constexpr RestartPolicy::Death after_ready{.was_ready = true};
constexpr RestartPolicy::Death before_ready{};

TEST_CASE("restarts: at once after a ready server, with increasing delays otherwise") {
    RestartPolicy policy(100, 1h);
    const Moment start{1h};
    for (int i = 0; i != 3; ++i) CHECK(policy.after_death(start, after_ready) == 0ms);
    const std::chrono::milliseconds delays[] = {0ms,    100ms,  200ms,  400ms, 800ms,
                                                1600ms, 3200ms, 6400ms, 6400ms};
    for (const auto& delay : delays) CHECK(policy.after_death(start, before_ready) == delay);
    CHECK(policy.after_death(start, after_ready) == 0ms);
    CHECK(policy.after_death(start, before_ready) == 0ms);
    CHECK(policy.after_death(start, before_ready) == 100ms);
}

TEST_CASE("restarts: limited within a moving period") {
    RestartPolicy policy(3, 10s);
    CHECK(policy.after_death(Moment{0s}, after_ready));
    CHECK(policy.after_death(Moment{4s}, after_ready));
    CHECK(policy.after_death(Moment{8s}, after_ready));
    CHECK_FALSE(policy.after_death(Moment{9s}, after_ready));
    CHECK(policy.after_death(Moment{10s}, after_ready));
    CHECK_FALSE(policy.after_death(Moment{13s}, after_ready));
    CHECK(policy.after_death(Moment{14s}, after_ready));
    CHECK(policy.after_death(Moment{100s}, after_ready));
}

TEST_CASE("restarts: unlimited, with increasing delays, while contents are kept") {
    RestartPolicy policy(3, 10s);
    const RestartPolicy::Death kept{.was_ready = true, .keeps_contents = true};
    for (int i = 0; i != 3; ++i) CHECK(policy.after_death(Moment{1s}, kept) == 0ms);
    const std::chrono::milliseconds delays[] = {0ms,    100ms,  200ms,  400ms, 800ms,
                                                1600ms, 3200ms, 6400ms, 6400ms};
    for (const auto& delay : delays) CHECK(policy.after_death(Moment{2s}, kept) == delay);
    for (int i = 0; i != 100'000; ++i) CHECK(policy.after_death(Moment{3s}, kept) == 6400ms);
    // If they are rare enough, they are immediate again.
    CHECK(policy.after_death(Moment{13s}, kept) == 0ms);
    CHECK(policy.after_death(Moment{13s}, kept) == 0ms);
}

TEST_CASE("restarts: rejected configurations have longer delays") {
    RestartPolicy policy(1, 1h);
    const RestartPolicy::Death wrong{.keeps_contents = true, .configuration = true};
    CHECK(policy.after_death(Moment{}, wrong) == 0ms);
    std::chrono::milliseconds delay = 100ms;
    for (; delay <= 51'200ms; delay *= 2) CHECK(policy.after_death(Moment{}, wrong) == delay);
    for (int i = 0; i != 5; ++i) CHECK(policy.after_death(Moment{}, wrong) == 51'200ms);
}

TEST_CASE("restarts: forget() resets the delays") {
    RestartPolicy policy(2, 1h);
    CHECK(policy.after_death(Moment{}, before_ready) == 0ms);
    CHECK(policy.after_death(Moment{}, before_ready) == 100ms);
    CHECK_FALSE(policy.after_death(Moment{}, before_ready));
    policy.forget();
    CHECK(policy.after_death(Moment{}, before_ready) == 0ms);
    CHECK(policy.after_death(Moment{}, before_ready) == 100ms);
    CHECK_FALSE(policy.after_death(Moment{}, before_ready));
}

}  // namespace
}  // namespace gpunbd::server::test
