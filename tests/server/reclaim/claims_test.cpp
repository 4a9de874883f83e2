#include "server/reclaim/reclaimer.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

Claim claim_of(std::uint64_t id, std::optional<std::uint64_t> asked) {
    return {.id = id, .owner = "someone", .asked = asked};
}

TEST_CASE("claims: they add up, and the end of one leaves the others") {
    Claims claims;
    CHECK(claims.begin(claim_of(1, 30), 100) == 30);
    CHECK(claims.begin(claim_of(2, 20), 70) == 20);
    CHECK(claims.end(2) == 20);
    CHECK(claims.end(2) == 0);
    CHECK(claims.contains(1));
    CHECK_FALSE(claims.contains(2));
    CHECK_FALSE(claims.end(1));  // no limit is left
    CHECK(claims.end(1) == 0);
}

TEST_CASE("claims: one that asks for more than there is has what there is") {
    Claims claims;
    CHECK(claims.begin(claim_of(1, {}), 100) == 100);
    CHECK(claims.begin(claim_of(2, 1), 0) == 0);
    CHECK(claims.begin(claim_of(3, 1000), 0) == 0);
    CHECK(claims.list()[0].bytes == 100);
    CHECK(claims.list()[1].bytes == 1);
    CHECK(claims.list()[2].bytes == 100);
    CHECK(claims.end(1) == 0);
    CHECK(claims.end(3) == 99);
    CHECK_FALSE(claims.end({}));
}

TEST_CASE("claims: age and end follow the monotonic clock") {
    using namespace std::chrono_literals;
    Claims claims;
    const Claim::Clock::time_point begun{};
    claims.begin({.id = 1, .begun = begun}, 100);
    claims.begin({.id = 2, .duration = 60s, .begun = begun + 10s}, 100);
    const auto listed = claims.list(begun + 30s);
    REQUIRE(listed.size() == 2);
    CHECK(listed[0].age == 30);
    CHECK_FALSE(listed[0].ends_in);
    CHECK(listed[1].age == 20);
    CHECK(listed[1].ends_in == 40);
    CHECK(claims.list(begun + 90s)[1].ends_in == 0);
}

TEST_CASE("claims: one that falls short has what was given back, and ends if that is nothing") {
    Claims claims;
    CHECK(claims.begin(claim_of(1, 60), 100) == 60);
    CHECK(claims.set_effect(1, {.wanted = 60, .lowered = 40, .limit_fell = 40}));
    CHECK(claims.begin(claim_of(2, 20), 60) == 20);
    CHECK_FALSE(claims.set_effect(2, {.wanted = 20}));
    REQUIRE(claims.list().size() == 1);
    CHECK(claims.list()[0].bytes == 40);
    // Exports used nothing: the claim keeps them from using it.
    Claims idle;
    CHECK(idle.begin(claim_of(1, 10), 0) == 0);
    CHECK(idle.set_effect(1, {}));
}

// The limit was above what is in use, and fell from there.
TEST_CASE("claims: the end of one that began when clients had freed memory gives all of it back") {
    Claims claims;
    CHECK(claims.begin(claim_of(1, 30), 100) == 30);
    CHECK(claims.set_effect(1, {.wanted = 30, .lowered = 30, .limit_fell = 30}));
    CHECK(claims.begin(claim_of(2, 20), 40) == 20);  // 40 of 70 are in use
    CHECK(claims.set_effect(2, {.wanted = 20, .lowered = 20, .limit_fell = 50}));
    CHECK(claims.list()[1].bytes == 20);
    CHECK(claims.begin(claim_of(3, 5), 20) == 5);
    CHECK(claims.set_effect(3, {.wanted = 5, .lowered = 5, .limit_fell = 5}));
    CHECK(claims.end(2) == 50);
    CHECK(claims.end(1) == 30);
    CHECK_FALSE(claims.end(3));
}

}  // namespace
}  // namespace gpunbd::server::test
