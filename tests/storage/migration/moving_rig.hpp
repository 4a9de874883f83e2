// For tests of migration.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "storage/migration/migrator.hpp"
#include "tests/storage/rig.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {

// 16 pages, four in a slab.
inline RigOptions large_pages(std::string_view home, std::string_view spills) {
    return {.devices = home,
            .spills = spills,
            .size = 256 * mib,
            .page_size = 16 * mib,
            .channels = {.chunk_size = 1 * mib, .slots = 2, .pinned = 4 * mib}};
}

// A rig with a migrator of its first device, which shares its volume.
class MovingRig : public Rig {
 public:
    static constexpr std::uint64_t all = ~std::uint64_t{0};

    explicit MovingRig(const RigOptions& with, unsigned threads = 4)
        : Rig(with),
          volumes{std::shared_ptr<Volume>(volume.get(), [](Volume*) {})},
          migrator(*devices[0],
                   [this] {
                       const std::lock_guard lock(mutex);
                       return volumes;
                   },
                   {.channels = with.channels, .threads = threads}) {
        migrator.start();
    }

    Migration reclaim(std::uint64_t bytes) { return wait_for(&Migrator::reclaim, bytes); }
    Migration release(std::uint64_t bytes = all) { return wait_for(&Migrator::release, bytes); }
    Migration give_up_revocable(std::uint64_t bytes) {
        return wait_for(&Migrator::give_up_revocable, bytes);
    }
    // What the migrator does by itself every 10 s.
    void tick() {
        std::promise<void> done;
        migrator.prepare([&](const Migration&) { done.set_value(); });
        done.get_future().wait();
    }
    Device& home() { return *devices[0]; }
    std::uint64_t bytes_on(std::uint32_t device) { return volume->memory()[device].mapped; }

    // The volumes of the migrator from now on. When this returns, it does not use others any more,
    // so they may end.
    void migrate(Migrator::Volumes all_of_them) {
        {
            const std::lock_guard lock(mutex);
            volumes = std::move(all_of_them);
        }
        tick();
    }

    std::mutex mutex;
    Migrator::Volumes volumes;
    Migrator migrator;

 private:
    Migration wait_for(void (Migrator::*request)(std::uint64_t, Migrator::Done),
                       std::uint64_t bytes) {
        std::promise<Migration> done;
        (migrator.*request)(bytes, [&](Migration&& out) { done.set_value(std::move(out)); });
        return done.get_future().get();
    }
};

}  // namespace gpunbd::storage::test
