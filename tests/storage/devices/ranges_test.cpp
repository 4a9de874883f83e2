// Allocates and frees ranges.
#include "storage/devices/ranges.hpp"

#include "tests/storage/random.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("ranges: all bytes can be allocated, also repeatedly") {
    Ranges ranges(1000);
    CHECK(ranges.free_bytes() == 1000);
    CHECK_FALSE(ranges.take(1001));
    CHECK(ranges.take(600) == 0U);
    CHECK(ranges.take(400) == 600U);
    CHECK(ranges.free_bytes() == 0);
    CHECK_FALSE(ranges.take(1));
    ranges.give_back(0);
    CHECK(ranges.free_bytes() == 600);
    CHECK_FALSE(ranges.take(601));
    ranges.give_back(600);
    CHECK(ranges.take(1000) == 0U);
    CHECK_FALSE(Ranges(0).take(1));
}

TEST_CASE("ranges: allocates from the smallest sufficient gap, which preserves large gaps") {
    Ranges ranges(1000);
    REQUIRE(ranges.take(500) == 0U);
    REQUIRE(ranges.take(100) == 500U);
    REQUIRE(ranges.take(200) == 600U);
    REQUIRE(ranges.take(100) == 800U);  // leaves a gap of 100
    ranges.give_back(0);
    ranges.give_back(600);
    CHECK(ranges.take(150) == 600U);
    CHECK(ranges.take(90) == 900U);
    CHECK(ranges.take(500) == 0U);
}

TEST_CASE("ranges: random operations neither overlap ranges nor lose any") {
    constexpr std::uint64_t all = 10000;
    struct Taken {
        std::uint64_t offset;
        std::uint64_t bytes;
    };
    Ranges ranges(all);
    Random random(1);
    std::vector<Taken> taken;
    std::uint64_t used = 0;
    for (int round = 0; round != 20000; ++round) {
        if (!taken.empty() && random.one_in(2)) {
            const std::size_t which = random.below(static_cast<std::uint32_t>(taken.size()));
            ranges.give_back(taken[which].offset);
            used -= taken[which].bytes;
            taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
            const std::uint64_t bytes = random.between(1, 900);
            const auto offset = ranges.take(bytes);
            if (!offset) continue;
            REQUIRE(*offset + bytes <= all);
            for (const Taken& each : taken) {
                REQUIRE((*offset + bytes <= each.offset || each.offset + each.bytes <= *offset));
            }
            taken.push_back({*offset, bytes});
            used += bytes;
        }
        REQUIRE(ranges.free_bytes() == all - used);
    }
    for (const Taken& each : taken) ranges.give_back(each.offset);
    CHECK(ranges.take(all) == 0U);
}

}  // namespace
}  // namespace gpunbd::storage::test
