// Requests that block their thread, and what ends them.
#include "storage/migration/blocking_migrator.hpp"

#include "tests/storage/migration/moving_rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

RigOptions with_spill() {
    RigOptions options;
    options.spills = "h";
    options.size = 4 * options.page_size;
    return options;
}

TEST_CASE("blocking migrator: cancel() ends a request whose pages return slowly, and later ones") {
    MovingRig rig(with_spill());
    rig.map_all();
    REQUIRE(rig.reclaim(MovingRig::all).missing() == 0);
    rig.migrator.set_return_rate(1);  // the second page would have to wait for a day
    BlockingMigrator blocking(rig.migrator);
    std::optional<Migration> result = Migration{};
    std::thread caller([&] { result = blocking.release(MovingRig::all); });
    while (rig.bytes_on(0) == 0) std::this_thread::yield();
    blocking.cancel();
    caller.join();
    CHECK_FALSE(result);
    CHECK_FALSE(blocking.reclaim(MovingRig::all));
}

TEST_CASE("blocking migrator: the limit is lifted once all pages have returned, and not before") {
    MovingRig rig(with_spill());
    rig.map_all();
    REQUIRE(rig.reclaim(MovingRig::all).missing() == 0);
    BlockingMigrator blocking(rig.migrator);
    rig.memories[0]->set_capacity(0);
    blocking.return_pages(rig.options.size);
    CHECK(rig.home().budget().limit() == rig.options.size);
    rig.memories[0]->set_capacity(SlabBudget::unlimited);
    blocking.return_pages(0);  // returns pages
    CHECK(rig.bytes_on(0) == rig.volume->mapped_bytes());
    CHECK(rig.home().budget().limit() == rig.options.size);
    blocking.return_pages(0);
    CHECK(rig.home().budget().limit() == SlabBudget::unlimited);
}

}  // namespace
}  // namespace gpunbd::storage::test
