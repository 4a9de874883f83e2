// Memory is given back as soon as less than keep_free is free, and revocable memory becomes fixed
// while the host is short of memory.
#include "storage/migration/free_memory_watch.hpp"

#include "tests/storage/migration/moving_rig.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

TEST_CASE("memory watch: pages leave when more memory has to be free") {
    const RigOptions options = large_pages("h", "h");
    MovingRig rig(options);
    rig.memories[0]->set_capacity(options.size);
    rig.map_all();
    FreeMemoryWatch watch(rig.home(), rig.migrator);
    watch.start();
    for (const std::uint64_t free : {64 * mib, 192 * mib}) {
        watch.set_keep_free(free);
        // A slab is free for others before the budget has it back.
        const std::uint64_t allowed = options.size - free;
        while (rig.home().free_memory() < free || rig.home().budget().used() > allowed) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(rig.home().budget().used() == allowed);
        watch.set_keep_free(0);
        // Until the watch waits for the next value. If it does not yet, the test is easier.
        std::this_thread::sleep_for(2 * FreeMemoryWatch::interval);
    }
}

TEST_CASE("revocable watch: slabs become fixed while the host could not take them") {
    using namespace std::chrono_literals;
    RigOptions options{.devices = "s", .spills = "h"};
    options.size = 4 * options.page_size;
    MovingRig rig(options);
    rig.script.revocable = true;
    map_page(*rig.volume, 0);
    PagePool& pool = rig.volume->pool(0);
    RevocableWatch watch(rig.home(), rig.migrator, 1ms);
    watch.start();
    rig.script.revocable = false;
    std::this_thread::sleep_for(10ms);
    CHECK(pool.memory().kind_of(0) == SlabKind::revocable);
    rig.script.revocable_excess = 1;
    while (pool.memory().kind_of(0) == SlabKind::revocable) std::this_thread::sleep_for(1ms);
    rig.script.revocable_excess = 0;
    CHECK(rig.mapped(0));
}

}  // namespace
}  // namespace gpunbd::storage::test
