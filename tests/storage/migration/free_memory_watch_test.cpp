// Memory is given back as soon as less than keep_free is free.
#include "storage/migration/free_memory_watch.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "tests/storage/migration/moving_rig.hpp"
#include "tests/storage/sizes.hpp"

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
        while (rig.home().free_memory() < free) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(rig.home().budget().used() == options.size - free);
        watch.set_keep_free(0);
        // Until the watch waits for the next value. If it does not yet, the test is easier.
        std::this_thread::sleep_for(2 * FreeMemoryWatch::interval);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
