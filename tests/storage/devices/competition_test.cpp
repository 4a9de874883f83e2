#include "storage/devices/competition.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

using namespace std::chrono_literals;
using Clock = Competition::Clock;

const Clock::time_point start = Clock::time_point{} + 1h;
constexpr auto quick = 10us;
constexpr auto slice = 2500us;

// Reports two slow kernels with the interval `apart`.
bool notice(Competition& competition, Clock::time_point at, Clock::duration apart = 1ms) {
    const bool first = competition.kernel_was_slow(at);
    return competition.kernel_was_slow(at + apart) || first;
}

// The number of consecutive quiet probes until kernels are allowed.
std::uint32_t quiet_probes(Competition& competition, Clock::time_point& now) {
    for (std::uint32_t count = 1;; ++count) {
        now += competition.until_probe();
        if (competition.probe_took(quick, now)) return count;
        REQUIRE(count < 1000);
    }
}

TEST_CASE("competition: two slow kernels within the window stop kernels, one does not") {
    Competition competition(GpuUse::automatic);
    CHECK(competition.kernels_allowed());
    CHECK_FALSE(competition.kernel_was_slow(start));
    CHECK_FALSE(competition.kernel_was_slow(start + 11ms));
    CHECK(competition.kernels_allowed());
    CHECK(competition.kernel_was_slow(start + 20ms));
    CHECK_FALSE(competition.kernels_allowed());
    // Kernels that were launched before may still end.
    CHECK_FALSE(competition.kernel_was_slow(start + 21ms));
}

TEST_CASE("competition: an explicit gpu_use setting is not overridden") {
    for (const GpuUse use : {GpuUse::all, GpuUse::copy_engines}) {
        Competition competition(use);
        CHECK(competition.use() == use);
        CHECK_FALSE(notice(competition, start));
        CHECK(competition.kernels_allowed() == (use == GpuUse::all));
    }
    CHECK(std::string_view(to_text(GpuUse::automatic)) == "auto");
    CHECK(std::string_view(to_text(GpuUse::copy_engines)) == "copy-engines");
    CHECK(std::string_view(to_text(GpuUse::all)) == "all");
}

TEST_CASE("competition: ends after a number of consecutive quiet probes") {
    Competition competition(GpuUse::automatic);
    REQUIRE(notice(competition, start));
    Clock::time_point now = start + 10ms;
    CHECK(competition.until_probe() < Competition::probe_interval);
    CHECK_FALSE(competition.probe_took(slice, now));
    CHECK(competition.until_probe() == Competition::probe_interval);
    CHECK_FALSE(competition.probe_took(quick, now += 100ms));
    CHECK_FALSE(competition.probe_took(quick, now += 100ms));
    CHECK_FALSE(competition.probe_took(slice, now += 100ms));
    CHECK(quiet_probes(competition, now) == Competition::min_quiet_probes);
    CHECK(competition.kernels_allowed());
    CHECK_FALSE(competition.probe_took(quick, now));
}

TEST_CASE("competition: recurring competition requires more quiet probes each time") {
    Competition competition(GpuUse::automatic);
    Clock::time_point now = start;
    std::uint32_t expected = Competition::min_quiet_probes;
    for (int round = 0; round != 8; ++round) {
        REQUIRE(notice(competition, now));
        now += 10ms;
        REQUIRE_FALSE(competition.probe_took(slice, now));
        CHECK(quiet_probes(competition, now) == expected);
        expected = std::min(2 * expected, Competition::max_quiet_probes);
        now += 10ms;
    }
    now += Competition::relapse;
    REQUIRE(notice(competition, now));
    REQUIRE_FALSE(competition.probe_took(slice, now));
    CHECK(quiet_probes(competition, now) == Competition::min_quiet_probes);
}

TEST_CASE("competition: a false suspicion delays the next one, longer each time") {
    Competition competition(GpuUse::automatic);
    Clock::time_point now = start;
    Clock::duration trust = Competition::min_trust;
    for (int round = 0; round != 8; ++round) {
        REQUIRE(notice(competition, now));
        now += 1ms;
        CHECK(quiet_probes(competition, now) == Competition::min_quiet_probes);
        CHECK_FALSE(notice(competition, now + trust - 2ms));
        now += trust;
        trust = std::min<Clock::duration>(2 * trust, Competition::max_trust);
    }
    // A confirmed suspicion resets that.
    REQUIRE(notice(competition, now));
    CHECK_FALSE(competition.probe_took(slice, now += 5ms));
    quiet_probes(competition, now);
    CHECK(notice(competition, now));
}

}  // namespace
}  // namespace gpunbd::storage::test
