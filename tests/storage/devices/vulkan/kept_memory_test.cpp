#include "storage/devices/vulkan/kept_memory.hpp"

#include <unistd.h>

#include "tests/storage/devices/vulkan/driver_layer.hpp"
#include "tests/storage/owned_slab.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd;
using namespace gpunbd::storage;
using gpunbd::storage::test::OwnedSlab;
using gpunbd::storage::vulkan::PhysicalDevice;
using gpunbd::storage::vulkan::test::DriverLayer;

constexpr std::uint64_t slab_bytes = 4 << 20;

// A kept slab of a device that has been closed, with 0x5a in each byte.
OwnedFd keep_one(DriverLayer& layer, SlabRecord& record) {
    const auto device = layer.open({.reserve = 0});
    REQUIRE(device->reason_not_kept() == "");
    const OwnedSlab slab(*device, {.bytes = slab_bytes, .kept = true});
    REQUIRE(slab.descriptor);
    REQUIRE(slab.cpu != nullptr);
    for (std::uint64_t at = 0; at != slab_bytes; ++at) REQUIRE(slab.cpu[at] == std::byte{0});
    std::memset(slab.cpu, 0x5a, slab_bytes);
    record = {.bytes = slab_bytes, .provision = Provision::thin, .kind = slab.kind};
    return OwnedFd::copy_of(slab.descriptor);
}

}  // namespace

TEST_CASE("Vulkan: a kept slab outlives its device and is taken over") {
    GPUNBD_LAYER(layer);
    SlabRecord record;
    OwnedFd descriptor = keep_one(layer, record);
    const auto device = layer.open({.reserve = 0});
    Slab slab;
    REQUIRE(device->take_over(descriptor, record, slab) == Status::ok);
    CHECK_FALSE(descriptor);
    CHECK(slab.bytes == slab_bytes);
    for (std::uint64_t at = 0; at != slab_bytes; ++at) REQUIRE(slab.cpu[at] == std::byte{0x5a});
    CHECK(device->use(slab_bytes).mapped == slab_bytes);
    device->release(slab);
}

TEST_CASE("Vulkan: kept slabs are not mapped where the driver exports only other memory") {
    GPUNBD_LAYER(layer);
    // As NVIDIA's driver: memory of the device, the same for the CPU, and memory of the host.
    layer.changes.describe = [](PhysicalDevice& physical) {
        constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
        constexpr VkMemoryPropertyFlags visible =
            VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        physical.memory.memoryTypeCount = 3;
        physical.memory.memoryTypes[0].propertyFlags = local;
        physical.memory.memoryTypes[1].propertyFlags = local | visible;
        physical.memory.memoryTypes[2].propertyFlags = visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    };
    layer.changes.types = 0b111;
    layer.changes.exported_types = 0b101;
    const auto device = layer.open({.reserve = 0});
    REQUIRE(device->reason_not_kept() == "");
    for (const bool kept : {false, true}) {
        const OwnedSlab slab(*device, {.bytes = slab_bytes, .kept = kept});
        CHECK((slab.cpu == nullptr) == kept);
    }
}

TEST_CASE("Vulkan: no kept slab is used in place where the driver exports only other memory") {
    GPUNBD_LAYER(layer);
    layer.changes.describe = [](PhysicalDevice& physical) {
        physical.memory.memoryTypeCount = 2;
        physical.memory.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
        physical.memory.memoryTypes[1].propertyFlags =
            VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
            VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    };
    layer.changes.types = 0b11;
    layer.changes.exported_types = 0b01;
    const auto device = layer.open({.reserve = 0});
    CHECK(device->reason_not_kept() ==
          "its driver does not export memory that the CPU can address; set mapped: 0");
    Slab slab;
    CHECK(device->allocate({.bytes = slab_bytes, .kept = true}, slab) == Status::io_error);
    CHECK(OwnedSlab(*device, {.bytes = slab_bytes}).cpu != nullptr);
}

TEST_CASE("Vulkan: a kept slab for which the driver makes no buffer is refused") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open({.reserve = 0, .mapped = ~std::uint64_t{0}});
    REQUIRE(device->reason_not_kept() == "");
    Slab slab;
    layer.changes.create_buffer = VK_ERROR_OUT_OF_HOST_MEMORY;
    CHECK(device->allocate({.bytes = slab_bytes, .kept = true}, slab) == Status::no_space);
    layer.changes.create_buffer = VK_SUCCESS;
    CHECK(OwnedSlab(*device, {.bytes = slab_bytes, .kept = true}).cpu != nullptr);
}

TEST_CASE("Vulkan: what is not a kept slab of this driver is refused") {
    GPUNBD_LAYER(layer);
    SlabRecord record;
    OwnedFd descriptor = keep_one(layer, record);
    const auto device = layer.open({.reserve = 0});
    const auto refused = [&](OwnedFd& given, SlabRecord described) {
        Slab slab;
        return device->take_over(given, described, slab) == Status::io_error && given &&
               slab.bytes == 0;
    };
    CHECK(refused(descriptor, {.bytes = 0, .provision = {}, .kind = record.kind}));
    CHECK(refused(descriptor, {.bytes = slab_bytes, .provision = {}, .kind = 0}));
    CHECK(refused(descriptor, {.bytes = slab_bytes, .provision = {}, .kind = 0x81}));
    CHECK(refused(descriptor, {.bytes = slab_bytes, .provision = {}, .kind = 0x5f}));
    CHECK(refused(descriptor, {.bytes = 64 * slab_bytes, .provision = {}, .kind = record.kind}));
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    OwnedFd pipe(ends[0]);
    const OwnedFd other_end(ends[1]);
    CHECK(refused(pipe, record));
    CHECK(device->available() > 0);
}

TEST_CASE("Vulkan: a driver that does not keep contents is refused with the reason") {
    GPUNBD_LAYER(layer);
    const auto device = layer.open({.reserve = 0});
    layer.changes.garble = true;  // what is read from kept memory is something else
    CHECK(contains(device->reason_not_kept(), "does not keep contents"));
    layer.changes.garble = false;
    Slab slab;
    CHECK(device->allocate({.bytes = slab_bytes, .kept = true}, slab) == Status::io_error);
}
