#include "server/gulp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/pool.hpp"
#include "tests/storage/random.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("gulp: has room at its end, and makes room by moving what is there to the front") {
    Gulp gulp;
    CHECK(gulp.bytes().empty());
    CHECK(gulp.room(100).size() == 100);
    CHECK(gulp.room(Gulp::capacity + 1).size() == Gulp::capacity);
    const auto all = gulp.room(Gulp::capacity);
    std::fill(all.begin(), all.end(), std::byte{1});
    gulp.received(all.size());
    CHECK(gulp.bytes().size() == Gulp::capacity);
    CHECK(gulp.room(1).empty());
    gulp.consume(Gulp::capacity - 10);
    CHECK(gulp.bytes().size() == 10);
    const auto room = gulp.room(100);
    CHECK(room.size() == 100);
    CHECK(room.data() == gulp.bytes().data() + 10);
    CHECK(gulp.room(Gulp::capacity).size() == Gulp::capacity - 10);
    gulp.consume(10);
    CHECK(gulp.room(Gulp::capacity).size() == Gulp::capacity);
}

TEST_CASE("gulp: bytes come out as they went in") {
    storage::test::Random random(3);
    Gulp gulp;
    std::vector<std::byte> in;
    std::size_t out = 0;
    for (int i = 0; i != 3000; ++i) {
        const auto room = gulp.room(1 + random.below(random.one_in(10) ? 300 * 1024 : 3000));
        const std::size_t count = std::min<std::size_t>(room.size(), random.below(200 * 1024));
        for (std::size_t at = 0; at != count; ++at) {
            room[at] = static_cast<std::byte>(random.one_in(50) ? at * 7 : at + count);
        }
        in.insert(in.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count));
        gulp.received(count);
        const auto bytes = gulp.bytes();
        REQUIRE(bytes.size() == in.size() - out);
        REQUIRE(std::equal(bytes.begin(), bytes.end(), in.begin() + std::ptrdiff_t(out)));
        const std::size_t used = random.below(static_cast<std::uint32_t>(bytes.size() + 1));
        gulp.consume(used);
        out += used;
        if (in.size() > 8 << 20) {
            in.erase(in.begin(), in.begin() + std::ptrdiff_t(out));
            out = 0;
        }
    }
}

TEST_CASE("pool: objects stay where they are, and are used again") {
    Pool<std::string> pool;
    std::vector<std::string*> taken;
    for (int i = 0; i != 100; ++i) {
        taken.push_back(&pool.take());
        *taken.back() = std::to_string(i);
    }
    for (int i = 0; i != 100; ++i) CHECK(*taken[static_cast<std::size_t>(i)] == std::to_string(i));
    for (std::string* each : taken) pool.give_back(*each);
    for (int i = 0; i != 100; ++i) {
        CHECK(std::find(taken.begin(), taken.end(), &pool.take()) != taken.end());
    }
    CHECK(std::find(taken.begin(), taken.end(), &pool.take()) == taken.end());
}

}  // namespace
}  // namespace gpunbd::server::test
