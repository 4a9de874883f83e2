#include "server/net/transport/tls_stream.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr ControlAllowance::Clock::time_point start{std::chrono::hours(1)};

std::uint64_t taken_at_once(ControlAllowance& allowance, ControlAllowance::Clock::time_point now) {
    std::uint64_t taken = 0;
    while (allowance.take(now)) ++taken;
    return taken;
}

TEST_CASE("control allowance: a limited number at once; payload earns more, up to the limit") {
    constexpr std::uint64_t for_one = ControlAllowance::payload / ControlAllowance::most;
    ControlAllowance allowance(start);
    CHECK(taken_at_once(allowance, start) == ControlAllowance::most);
    CHECK_FALSE(allowance.take(start));
    allowance.received(for_one - 1);
    CHECK(taken_at_once(allowance, start) == 0);
    allowance.received(1);
    CHECK(taken_at_once(allowance, start) == 1);
    for (int i = 0; i != 10; ++i) {  // one MiB at a time, as it arrives
        allowance.received(std::uint64_t{1} << 20);
    }
    CHECK(taken_at_once(allowance, start) == (std::uint64_t{10} << 20) / for_one);
    allowance.received(100 * ControlAllowance::payload);
    CHECK(taken_at_once(allowance, start) == ControlAllowance::most);
}

TEST_CASE("control allowance: time earns further records, for clients with periodic key updates") {
    ControlAllowance allowance(start);
    taken_at_once(allowance, start);
    auto now = start;
    for (int i = 0; i != 100; ++i) {
        now += ControlAllowance::interval / 2;
        CHECK(taken_at_once(allowance, now) == (i % 2 == 0 ? 0 : 1));
    }
    now += std::chrono::hours(100);
    CHECK(taken_at_once(allowance, now) == ControlAllowance::most);
}

}  // namespace
}  // namespace gpunbd::server::test
