// Volumes are created and destroyed off the main thread, and the owner of the last one.
#include "server/exports/volume_disposal.hpp"

#include "tests/server/rig.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

const storage::VolumeOptions full{.size = 256 * mib, .provision = storage::Provision::full};

TEST_CASE("volume: creation is cancelled between two slabs, without a leak") {
    storage::test::MemoryDevice device(0, {});
    std::stop_source source;
    int allocations = 0;
    device.allocates = [&] {
        if (++allocations == 2) source.request_stop();
    };
    const auto made = storage::Volume::create(full, {&device}, source.get_token());
    CHECK(std::holds_alternative<storage::CapacityError>(made));
    CHECK(allocations == 2);
    CHECK(device.slabs() == 0);
}

TEST_CASE("volume disposal: releasing a volume does not wait for its destruction") {
    storage::test::LatchDevice device(0, {});
    device.releasing.close();
    {
        VolumeDisposal disposal;
        for (int i = 0; i != 2; ++i) {
            const auto volume = disposal.shared(checked(storage::Volume::create(full, {&device})));
            CHECK(volume->size() == full.size);
        }
        CHECK(device.memory.slabs() == 8);  // both are released, and neither is destroyed yet
        device.releasing.wait_for_one();    // another thread
        device.releasing.open();
    }
    CHECK(device.memory.slabs() == 0);
}

// Like the thread that removes the mappings of an earlier server.
TEST_CASE("volume disposal: waits for volumes that other threads still own") {
    storage::test::MemoryDevice device(0, {});
    std::atomic<bool> ending{false};
    std::thread other;
    {
        VolumeDisposal disposal;
        auto volume = disposal.shared(checked(
            storage::Volume::create({.size = 256 * kib, .page_size = 64 * kib}, {&device})));
        {
            storage::PageRef held;
            REQUIRE(volume->map(0, held) == storage::Status::ok);
        }
        other = std::thread([&ending, volume = std::move(volume)]() mutable {
            ending.wait(false);
            // Time for the disposal to end early, which would be an error.
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            volume.reset();
        });
        CHECK(device.slabs() == 1);
        ending = true;
        ending.notify_one();
    }
    CHECK(device.slabs() == 0);
    other.join();
}

TEST_CASE("volume disposal: does not wait for an unused reservation") {
    VolumeDisposal disposal;
    const VolumeDisposal::Reservation unused = disposal.reserve();
}

}  // namespace
}  // namespace gpunbd::server::test
