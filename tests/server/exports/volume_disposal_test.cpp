// Volumes are created and destroyed off the main thread: the device here takes as long as a test
// requires.
#include "server/exports/volume_disposal.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <thread>

#include "tests/server/rig.hpp"
#include "tests/storage/memory_device.hpp"

namespace gpunbd::server::test {
namespace {

// Calls a function when memory is allocated, and blocks before memory is released.
class SlowDevice final : public storage::Device {
 public:
    explicit SlowDevice() : Device(0), inner_(0, {}) {}
    const storage::DeviceInfo& info() const override { return inner_.info(); }
    std::uint64_t available() const override { return inner_.available(); }
    storage::Status allocate(const storage::SlabRequest& request, storage::Slab& out) override {
        if (on_allocate) on_allocate();
        return inner_.allocate(request, out);
    }
    void release(storage::Slab& slab) noexcept override {
        if (gate != nullptr) gate->wait();
        released_by = std::this_thread::get_id();
        inner_.release(slab);
    }
    storage::Status clear(const storage::Slab& slab, std::uint64_t offset,
                          std::uint64_t bytes) override {
        return inner_.clear(slab, offset, bytes);
    }
    std::unique_ptr<storage::Channel> open_channel(
        const storage::ChannelOptions& options) override {
        return inner_.open_channel(options);
    }
    std::uint64_t slabs() const { return inner_.slabs(); }

    std::function<void()> on_allocate;
    std::shared_future<void>* gate = nullptr;
    std::thread::id released_by;

 private:
    storage::test::MemoryDevice inner_;
};

const storage::VolumeOptions full{.size = 256 * mib, .provision = storage::Provision::full};

TEST_CASE("volume: creation is cancelled between two slabs, without a leak") {
    SlowDevice device;
    std::stop_source source;
    int allocations = 0;
    device.on_allocate = [&] {
        if (++allocations == 2) source.request_stop();
    };
    const auto made = storage::Volume::create(full, {&device}, source.get_token());
    CHECK(std::holds_alternative<storage::CapacityError>(made));
    CHECK(allocations == 2);
    CHECK(device.slabs() == 0);
}

TEST_CASE("volume disposal: releasing a volume does not wait for its destruction") {
    SlowDevice device;
    std::promise<void> promise;
    std::shared_future<void> gate(promise.get_future());
    device.gate = &gate;
    {
        VolumeDisposal disposal;
        for (int i = 0; i != 2; ++i) {
            auto made = storage::Volume::create(full, {&device});
            REQUIRE(std::holds_alternative<std::unique_ptr<storage::Volume>>(made));
            auto volume =
                disposal.shared(std::move(std::get<std::unique_ptr<storage::Volume>>(made)));
            CHECK(volume->size() == full.size);
        }
        CHECK(device.slabs() == 8);  // both are released, and neither is destroyed yet
        promise.set_value();
    }
    CHECK(device.slabs() == 0);
    CHECK(device.released_by != std::this_thread::get_id());
}

}  // namespace
}  // namespace gpunbd::server::test
