#include "server/counters/activity_map.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint64_t activity_mib = 1 << 20;

TEST_CASE("activity: nothing is recorded before the map is watched") {
    ActivityMap map(64 * activity_mib, 2 * activity_mib);
    map.written(0, activity_mib);
    CHECK_FALSE(map.was_written(0, 64 * activity_mib));
    map.watch(10);
    CHECK_FALSE(map.was_written(0, 64 * activity_mib));
    map.written(5 * activity_mib, 1);
    map.read(0, 2 * activity_mib);
    CHECK(map.was_written(4 * activity_mib, 2 * activity_mib));
    CHECK_FALSE(map.was_written(0, 4 * activity_mib));
    CHECK(map.was_read(0, 2 * activity_mib));
    CHECK_FALSE(map.was_read(2 * activity_mib, 62 * activity_mib));
}

TEST_CASE("activity: an access is reported for one more second, then not any more") {
    ActivityMap map(64 * activity_mib, 2 * activity_mib);
    map.watch(10);
    map.read(0, 1);
    map.watch(11);
    CHECK(map.was_read(0, 1));
    map.watch(12);
    CHECK_FALSE(map.was_read(0, 1));
    // The recorded seconds have 16 bits and wrap around.
    for (const std::uint64_t second : {65533ULL, 65534ULL, 65535ULL}) {
        CAPTURE(second);
        map.watch(second);
        map.written(0, 1);
        map.watch(second + 1);
        CHECK(map.was_written(0, 1));
        map.watch(second + 2);
        CHECK_FALSE(map.was_written(0, 1));
    }
}

TEST_CASE("activity: large exports have larger cells, which cover the last byte") {
    constexpr std::uint64_t size = (std::uint64_t{1} << 50) + 1;
    ActivityMap map(size, 2 * activity_mib);
    CHECK((size - 1) / map.cell() < ActivityMap::max_cells);
    map.watch(1);
    map.written(size - 1, 1);
    CHECK(map.was_written(size - 1, 1));
    CHECK_FALSE(map.was_written(0, map.cell()));
    map.read(0, size);
    CHECK(map.was_read(size / 2, 1));
    map.read(size - 1, 0);
}

}  // namespace
}  // namespace gpunbd::server::test
