// Channels of a real GPU through its Vulkan driver: every path with any alignment, completed writes
// and fenced stores, slabs, threads. Exits with 77 if there is no GPU. GPUNBD_VULKAN_DEVICE names
// another device, which may be an implementation on the CPU. Prints the cost of each path.
#include "storage/devices/vulkan/vulkan_driver.hpp"
#include "tests/gpu/channel_exercise.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd::test;
using gpunbd::storage::vulkan::vulkan_driver;

std::string device_id(std::string& why_none) {
    if (const char* const named = std::getenv("GPUNBD_VULKAN_DEVICE")) return named;
    const std::vector<std::string> ids = vulkan_driver().enumerate(why_none);
    return ids.empty() ? std::string() : ids.front();
}

std::unique_ptr<Device> open(const DeviceOptions& options = {}) {
    std::string why_none;
    return vulkan_driver().open(device_id(why_none), 0, options);
}

std::unique_ptr<Channel> open_channel(Device& device, ChannelOptions options,
                                      const Policy& policy) {
    options.policy = &policy;
    return device.open_channel(options);
}

// Slabs that the CPU can address, and others; all are copied by the device.
std::vector<DeviceOptions> mappings() {
    DeviceOptions mapped;
    mapped.mapped = ~std::uint64_t{0};
    DeviceOptions unmapped;
    unmapped.mapped = 0;
    return {mapped, unmapped};
}

}  // namespace

TEST_CASE("every path copies any range at any alignment") {
    for (const DeviceOptions& options : mappings()) {
        const auto device = open(options);
        const OwnedSlab owned(*device, {.bytes = 64 * mib});
        CAPTURE(device->info().access);
        for (const NamedPolicy& named : policies()) {
            INFO(named.name);
            const auto channel = open_channel(*device, roomy, named.policy);
            exercise(*channel, owned, 0, 64 * mib, 60, 8 * mib, 1);
            exercise(*channel, owned, 4093, mib, 600, 70'000, 2);
        }
    }
}

TEST_CASE("the device copies within and between its slabs") {
    for (const DeviceOptions& options : mappings()) exercise_device_copies(*open(options));
}

TEST_CASE("every path reads the data of completed writes and fenced stores") {
    for (const DeviceOptions& options : mappings()) {
        const auto device = open(options);
        const OwnedSlab owned(*device, {.bytes = 64 * mib});
        const Slab& slab = owned;
        const auto engine = open_channel(*device, usual, only(PathKind::copy_engine));
        const auto kernel = open_channel(*device, usual, only(PathKind::kernel));
        // The kernel copies whole words.
        exercise_visibility(slab, {engine.get(), kernel.get()}, {engine.get(), kernel.get()}, 4);
    }
}

TEST_CASE("a slab reads as zeroes, whatever its memory contained before") {
    DeviceOptions options;
    options.mapped = 0;
    const auto device = open(options);
    const auto channel = device->open_channel(roomy);
    for (int round = 0; round < 3; ++round) {
        const OwnedSlab owned(*device, {.bytes = 256 * mib});
        CHECK(bytes_other_than(*channel, owned, std::byte{0}) == 0);
        std::size_t held = 0;
        std::byte* const staging = channel->write_staging().take(mib, held);
        std::memset(staging, 0xff, mib);
        Copies copies(*channel);
        for (std::uint64_t at = 0; at < owned.bytes; at += mib) {
            copies.add(Copy::Kind::write, owned, at, mib, staging);
        }
        CHECK(copies.await() == 0);
        channel->write_staging().give_back(staging, mib, held);
    }
}

TEST_CASE("many workers copy concurrently, each with its own channel") {
    const auto device = open(mappings().back());
    const OwnedSlab owned(*device, {.bytes = 64 * mib});
    std::vector<std::thread> workers;
    const std::uint64_t count = std::clamp(std::thread::hardware_concurrency(), 3U, 12U);
    for (std::uint64_t number = 0; number < count; ++number) {
        workers.emplace_back([&, number] {
            const auto channel = device->open_channel(usual);
            exercise(*channel, owned, number * 5 * mib, 5 * mib, 200, 300'000, number);
        });
    }
    for (std::thread& worker : workers) worker.join();
}

TEST_CASE("slabs beyond the mapped budget are not mapped, and the capacity limits all") {
    DeviceOptions options;
    options.mapped = 64 * mib;
    options.capacity = 128 * mib;
    const auto device = open(options);
    const OwnedSlab first(*device, {.bytes = 64 * mib});
    const OwnedSlab second(*device, {.bytes = 64 * mib});
    if (first.cpu == nullptr) {
        MESSAGE("nothing is mapped: " << device->info().access);
    } else {
        CHECK(device->use(128 * mib).mapped == 64 * mib);
    }
    CHECK(second.cpu == nullptr);
    Slab third;
    CHECK(device->allocate({.bytes = 64 * mib}, third) == Status::no_space);
    CHECK(device->available() == 0);
}

TEST_CASE("calibration finds a policy") {
    for (const DeviceOptions& options : mappings()) {
        const auto device = open(options);
        const std::string table = device->calibrate();
        MESSAGE(device->info().access << '\n' << table);
        CHECK_FALSE(table.empty());
    }
}

int main(int argc, char** argv) {
    std::string why_none;
    if (device_id(why_none).empty()) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    return doctest::Context(argc, argv).run();
}
