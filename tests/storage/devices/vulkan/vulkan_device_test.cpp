#include "storage/devices/vulkan/vulkan_device.hpp"

#include "storage/devices/vulkan/physical_device.hpp"
#include "tests/gpu/channel_exercise.hpp"
#include "tests/storage/devices/vulkan/driver_layer.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd::test;
using namespace gpunbd::storage::vulkan;
using gpunbd::storage::vulkan::test::DriverLayer;

DeviceOptions staged() { return {.reserve = 0, .mapped = 0}; }

DeviceOptions mapped() { return {.reserve = 0, .mapped = ~std::uint64_t{0}}; }

std::unique_ptr<Channel> open_channel(Device& device, const Policy& policy) {
    return device.open_channel({.policy = &policy});
}

// Writes and reads the same 4 KiB. Returns the number of failed copies.
std::size_t copy_there_and_back(Channel& channel, const Slab& slab) {
    std::size_t held = 0;
    std::byte* const in = channel.write_staging().take(4096, held);
    std::byte* const out = channel.read_staging().take(4096, held = 0);
    std::memset(in, 0x5a, 4096);
    Copies copies(channel);
    copies.add(Copy::Kind::write, slab, 0, 4096, in);
    std::size_t failed = copies.await();
    copies.add(Copy::Kind::read, slab, 0, 4096, out);
    failed += copies.await();
    if (failed == 0) CHECK(std::memcmp(in, out, 4096) == 0);
    channel.write_staging().give_back(in, 4096, held = 4096);
    channel.read_staging().give_back(out, 4096, held = 4096);
    return failed;
}

}  // namespace

TEST_CASE("Vulkan: memory that the CPU caches is used in place") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open({.reserve = 0});
    const OwnedSlab owned(*device, {.bytes = 4 * mib});
    const auto channel = device->open_channel(usual);
    REQUIRE(owned.cpu != nullptr);
    CHECK(channel->receives_into(owned, 1 << 20));
    CHECK(device->sends_in_place());
    for (std::uint64_t at = 0; at != owned.bytes; at += 4096) {
        REQUIRE(owned.cpu[at] == std::byte{0});
    }
    CHECK(device->use(owned.bytes).mapped == owned.bytes);
}

TEST_CASE("Vulkan: each path copies any range at any alignment") {
    GPUNBD_LAYER(layer);
    for (const DeviceOptions& options : {staged(), mapped()}) {
        const auto device = layer.open(options);
        const OwnedSlab owned(*device, {.bytes = 8 * mib});
        for (const PathKind path : {PathKind::copy_engine, PathKind::kernel, PathKind::mapping}) {
            const auto channel = open_channel(*device, only(path));
            exercise(*channel, owned, 0, 8 * mib, 20, mib, 1);
            exercise(*channel, owned, 4093, mib, 100, 70'000, 2);
        }
    }
}

TEST_CASE("Vulkan: the device copies within and between its slabs") {
    GPUNBD_LAYER(layer);
    exercise_device_copies(*layer.open(staged()));
}

TEST_CASE("Vulkan: devices without device addresses or a working shader use transfers only") {
    GPUNBD_LAYER(layer);
    SUBCASE("no device addresses") {
        layer.changes.describe = [](PhysicalDevice& physical) {
            physical.device_addresses = false;
        };
    }
    SUBCASE("the shader cannot be compiled") {
        layer.changes.compile = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    const auto device = layer.open(staged());
    CHECK(contains(device->info().access, "no shader"));
    const OwnedSlab owned(*device, {.bytes = 8 * mib});
    const auto channel = open_channel(*device, only(PathKind::kernel));
    exercise(*channel, owned, 0, 8 * mib, 20, 100'000, 1);
}

TEST_CASE("Vulkan: without imported host memory, staging memory is the driver's") {
    GPUNBD_LAYER(layer);
    layer.changes.describe = [](PhysicalDevice& physical) { physical.host_import_alignment = 0; };
    const auto device = layer.open(staged());
    const OwnedSlab owned(*device, {.bytes = 8 * mib});
    const auto channel = device->open_channel(usual);
    exercise(*channel, owned, 0, 8 * mib, 20, 100'000, 1);
}

TEST_CASE("Vulkan: many threads share one queue") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(staged());
    const OwnedSlab owned(*device, {.bytes = 16 * mib});
    std::vector<std::thread> workers;
    for (std::uint64_t number = 0; number < 4; ++number) {
        workers.emplace_back([&, number] {
            const auto channel = device->open_channel(usual);
            exercise(*channel, owned, number * 4 * mib, 4 * mib, 20, 100'000, number);
        });
    }
    for (std::thread& worker : workers) worker.join();
}

TEST_CASE("Vulkan: a device whose queues do not copy is refused") {
    GPUNBD_LAYER(layer);
    layer.changes.garble = true;
    CHECK_THROWS_WITH_AS(layer.open(staged()), doctest::Contains("none of its queues copies"),
                         std::runtime_error);
}

TEST_CASE("Vulkan: what cannot be mapped is used without a mapping") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(mapped());
    OwnedSlab first(*device, {.bytes = 2 * mib});
    CHECK(first.cpu != nullptr);
    layer.changes.allocate_mapped = VK_ERROR_MEMORY_MAP_FAILED;
    const OwnedSlab second(*device, {.bytes = 2 * mib});
    CHECK(second.cpu == nullptr);
    CHECK(device->use(0).mapped == 2 * mib);
    const auto channel = device->open_channel(usual);
    CHECK(copy_there_and_back(*channel, second) == 0);
}

TEST_CASE("Vulkan: the driver's lack of memory is no space, and nothing stays allocated") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(staged());
    const std::uint64_t before = device->available();
    Slab slab;
    layer.changes.allocate = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    CHECK(device->allocate({.bytes = 2 * mib}, slab) == Status::no_space);
    layer.changes.allocate = VK_ERROR_INITIALIZATION_FAILED;
    CHECK(device->allocate({.bytes = 2 * mib}, slab) == Status::io_error);
    layer.changes.allocate = VK_SUCCESS;
    layer.changes.submit = VK_ERROR_OUT_OF_HOST_MEMORY;  // the slab cannot be cleared
    CHECK(device->allocate({.bytes = 2 * mib}, slab) == Status::io_error);
    layer.changes.submit = VK_SUCCESS;
    CHECK(slab.bytes == 0);
    CHECK(device->available() <= before);
    CHECK(device->use(0).mapped == 0);
    const OwnedSlab owned(*device, {.bytes = 2 * mib});
}

TEST_CASE("Vulkan: slabs respect the limits of the driver") {
    GPUNBD_LAYER(layer);
    SUBCASE("the number of allocations") {
        constexpr std::uint32_t allocations = 4;
        layer.changes.describe = [](PhysicalDevice& physical) {
            physical.max_allocations = 2 * allocations;  // half of them are spare
        };
        const auto device = layer.open({.reserve = 0});
        std::vector<Slab> slabs(2 * allocations);
        std::uint32_t made = 0;
        while (made < slabs.size() &&
               device->allocate({.bytes = 64 << 10}, slabs[made]) == Status::ok) {
            ++made;
        }
        CHECK(made > 0);
        CHECK(made <= allocations);
        device->release(slabs[0]);
        CHECK(device->allocate({.bytes = 64 << 10}, slabs[0]) == Status::ok);
        for (Slab& slab : slabs) {
            if (slab.bytes != 0) device->release(slab);
        }
    }
    SUBCASE("the size of an allocation") {
        layer.changes.describe = [](PhysicalDevice& physical) {
            physical.max_allocation_bytes = mib;
        };
        const auto device = layer.open({.reserve = 0});
        Slab slab;
        CHECK(device->allocate({.bytes = 2 * mib}, slab) == Status::no_space);
        CHECK(device->allocate({.bytes = mib}, slab) == Status::ok);
        device->release(slab);
    }
}

TEST_CASE("Vulkan: available memory is what the driver reports, without the reserve") {
    GPUNBD_LAYER(layer);
    layer.changes.free_memory = 10 * mib;
    const auto device = layer.open({.reserve = 4 * mib});
    CHECK(device->free_memory() == 10 * mib);
    CHECK(device->available() == 6 * mib);
    Slab slab;
    CHECK(device->allocate({.bytes = 8 * mib}, slab) == Status::no_space);
}

TEST_CASE("Vulkan: a slab that the driver has placed in host memory is given back") {
    GPUNBD_LAYER(layer);
    layer.changes.describe = [](PhysicalDevice& physical) {
        physical.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        physical.driver_id = VK_DRIVER_ID_MESA_RADV;
    };
    layer.changes.host_fill_ticks = 40;  // so much faster is the memory of the device
    const auto device = layer.open(staged());
    CHECK_FALSE(contains(device->info().access, "cannot be measured"));
    const std::uint64_t before = device->available();
    Slab slab;
    layer.changes.fill_ticks = 40;
    CHECK(device->allocate({.bytes = 16 * mib}, slab) == Status::no_space);
    CHECK(device->available() == before);
    layer.changes.fill_ticks = 1;
    CHECK(device->allocate({.bytes = 16 * mib}, slab) == Status::ok);
    device->release(slab);

    layer.changes.host_fill_ticks = 1;
    CHECK(contains(layer.open(staged())->info().access, "cannot be measured"));
}

TEST_CASE("Vulkan: a copy that cannot be submitted fails alone") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(staged());
    const OwnedSlab owned(*device, {.bytes = 2 * mib});
    for (const PathKind path : {PathKind::copy_engine, PathKind::kernel}) {
        const auto channel = open_channel(*device, only(path));
        layer.changes.submit = VK_ERROR_OUT_OF_HOST_MEMORY;
        CHECK(copy_there_and_back(*channel, owned) == 2);
        layer.changes.submit = VK_SUCCESS;
        CHECK_FALSE(device->failed());
        CHECK(copy_there_and_back(*channel, owned) == 0);
    }
}

TEST_CASE("Vulkan: a lost device fails all copies at once") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(staged());
    OwnedSlab owned(*device, {.bytes = 2 * mib});
    const auto channel = device->open_channel(usual);
    SUBCASE("seen when copies are submitted") { layer.changes.submit = VK_ERROR_DEVICE_LOST; }
    SUBCASE("seen when copies are awaited") { layer.changes.counter = VK_ERROR_DEVICE_LOST; }
    CHECK(copy_there_and_back(*channel, owned) == 2);
    CHECK(device->failed());
    Slab slab;
    CHECK(device->allocate({.bytes = mib}, slab) == Status::io_error);
    CHECK(device->clear(owned, 0, mib) == Status::io_error);
    CHECK(device->copy(owned, 0, owned, mib, mib) == Status::io_error);
    layer.changes.submit = VK_SUCCESS;  // the driver has lost nothing, and has to end its work
    layer.changes.counter = VK_SUCCESS;
}

TEST_CASE("Vulkan: calibration finds a policy, which can be restored") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open(staged());
    CHECK(contains(device->calibrate(), "chunk size"));
    const std::string state = device->calibration_state();
    CHECK_FALSE(state.empty());
    CHECK(layer.open(staged())->restore_calibration(state));
    layer.changes.describe = [](PhysicalDevice& physical) { physical.driver = "another version"; };
    CHECK_FALSE(layer.open(staged())->restore_calibration(state));
}
