#include "storage/devices/gpu/revocable_slabs.hpp"

#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("revocable slabs: all are yielded, and each is claimed once to return") {
    RevocableSlabs slabs;
    slabs.add({.address = 1000, .bytes = 10});
    slabs.add({.address = 2000, .bytes = 20});
    CHECK(slabs.bytes() == 30);
    CHECK(slabs.yielded() == 0);
    CHECK_FALSE(slabs.claim());
    slabs.yield_all();
    CHECK(slabs.yielded() == 30);
    const auto first = slabs.claim();
    const auto second = slabs.claim();
    REQUIRE(first);
    REQUIRE(second);
    CHECK(first->address != second->address);
    CHECK_FALSE(slabs.claim());
    slabs.unclaim(first->address, true);
    slabs.unclaim(second->address, false);
    CHECK(slabs.yielded() == second->bytes);
    CHECK(slabs.claim() == second);
    slabs.unclaim(second->address, false);
    slabs.remove(second->address);
    CHECK(slabs.yielded() == 0);
    CHECK(slabs.bytes() == first->bytes);
    CHECK_FALSE(slabs.claim());
}

TEST_CASE("revocable slabs: a claimed slab is removed only after it is unclaimed") {
    RevocableSlabs slabs;
    slabs.add({.address = 1000, .bytes = 10});
    slabs.yield_all();
    const auto claimed = slabs.claim();
    REQUIRE(claimed);
    std::atomic<bool> begun{false};
    std::atomic<bool> unclaimed{false};
    bool in_order = false;
    std::thread remover([&] {
        begun = true;
        slabs.remove(1000);
        in_order = unclaimed;
    });
    while (!begun) std::this_thread::yield();
    CHECK(slabs.bytes() == 10);
    unclaimed = true;
    slabs.unclaim(1000, false);
    remover.join();
    CHECK(in_order);
    CHECK(slabs.bytes() == 0);
    CHECK(slabs.yielded() == 0);
}

TEST_CASE("revocable limits: the host has to hold all revocable memory beside its reserve") {
    constexpr HostRoom host{.available = 64 * gib, .reserve = 8 * gib, .promised = 16 * gib};
    constexpr std::uint64_t reserve = 256 * mib;
    CHECK(reason_not_revocable(40 * gib, reserve, host).empty());
    CHECK(reason_not_revocable(40 * gib + 1, reserve, host) ==
          "revocable is 40961 MiB, but the host can take only 40960 MiB: 65536 MiB are available, "
          "8192 MiB stay free, and 16384 MiB are for other devices; set revocable: 40960M");
    CHECK(reason_not_revocable(gib, reserve, {.available = gib, .reserve = 2 * gib}) ==
          "revocable is 1024 MiB, but the host can take only 0 MiB: 1024 MiB are available, 2048 "
          "MiB stay free, and 0 MiB are for other devices; set revocable: 0");
    CHECK(reason_not_revocable(gib, 127 * mib, host) ==
          "revocable memory needs a reserve of 128 MiB or more, not 127 MiB: the server detects by "
          "the free memory that another program takes memory; set reserve: 128M");
}

TEST_CASE("revocable limits: own slabs cannot make the free memory look low") {
    for (const std::uint64_t total : {4 * gib, 24 * gib, 80 * gib, 141 * gib}) {
        for (const std::uint64_t reserve : {128 * mib, 256 * mib, total / 32, total / 4}) {
            CHECK(low_free_memory(total, reserve) < reserve);
            CHECK(low_free_memory(total, reserve) >= 64 * mib);
        }
    }
    CHECK(low_free_memory(80 * gib, 80 * gib / 32) == 80 * gib / 64);
}

}  // namespace
}  // namespace gpunbd::storage::test
