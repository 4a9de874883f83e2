// Channels of a real GPU through its Vulkan driver: every path with any alignment, completed writes
// and fenced stores, slabs, threads. Exits with 77 if there is no GPU. GPUNBD_VULKAN_DEVICE names
// another device, which may be an implementation on the CPU. `--bench` prints the cost of each
// path.
#include <doctest/doctest.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/store.hpp"
#include "storage/devices/vulkan/vulkan_driver.hpp"
#include "tests/gpu/channel_exercise.hpp"

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
        const OwnedSlab owned(*device, 64 * mib);
        CAPTURE(device->info().access);
        for (const NamedPolicy& named : policies()) {
            INFO(named.name);
            const auto channel = open_channel(*device, roomy, named.policy);
            exercise(*channel, owned.slab, 0, 64 * mib, 60, 8 * mib, 1);
            exercise(*channel, owned.slab, 4093, mib, 600, 70'000, 2);
        }
    }
}

TEST_CASE("the device copies within and between its slabs") {
    for (const DeviceOptions& options : mappings()) exercise_device_copies(*open(options));
}

TEST_CASE("every path reads the data of completed writes and fenced stores") {
    for (const DeviceOptions& options : mappings()) {
        const auto device = open(options);
        const OwnedSlab owned(*device, 64 * mib);
        const Slab& slab = owned.slab;
        const auto engine = open_channel(*device, usual, only(PathKind::copy_engine));
        const auto kernel = open_channel(*device, usual, only(PathKind::kernel));
        Random random(3);
        Bytes payload(65536);
        for (Channel* writer : {engine.get(), kernel.get(), static_cast<Channel*>(nullptr)}) {
            if (writer == nullptr && slab.cpu == nullptr) continue;
            for (Channel* reader : {engine.get(), kernel.get()}) {
                CAPTURE(writer == nullptr);
                CAPTURE(writer == kernel.get());
                CAPTURE(reader == kernel.get());
                Channel& writing = writer == nullptr ? *engine : *writer;
                Copies writes(writing);
                Copies reads(*reader);
                std::size_t held = 0;
                std::byte* const in = writing.write_staging().take(65536, held);
                std::byte* const out = reader->read_staging().take(65536, held = 0);
                std::size_t stale = 0;
                for (int i = 0; i < 2000; ++i) {
                    const std::uint64_t length = random.length(i % 8 == 0 ? 16384 : 1024) * 4;
                    const std::uint64_t offset = random.below(2048) * 4;  // reuses a few blocks
                    random.fill(payload.data(), length);
                    if (writer == nullptr) {
                        store_streaming(slab.cpu + offset, payload.data(), length);
                        store_fence();
                    } else {
                        std::memcpy(in, payload.data(), length);
                        writes.add(Copy::Kind::write, slab, offset, length, in);
                        REQUIRE(writes.await() == 0);
                    }
                    reads.add(Copy::Kind::read, slab, offset, length, out);
                    REQUIRE(reads.await() == 0);
                    if (std::memcmp(out, payload.data(), length) != 0) ++stale;
                }
                CHECK(stale == 0);
                writing.write_staging().give_back(in, 65536, held = 65536);
                reader->read_staging().give_back(out, 65536, held = 65536);
            }
        }
    }
}

TEST_CASE("a slab reads as zeroes, whatever its memory contained before") {
    DeviceOptions options;
    options.mapped = 0;
    const auto device = open(options);
    const auto channel = device->open_channel(roomy);
    for (int round = 0; round < 3; ++round) {
        const OwnedSlab owned(*device, 256 * mib);
        CHECK(bytes_other_than(*channel, owned.slab, std::byte{0}) == 0);
        std::size_t held = 0;
        std::byte* const staging = channel->write_staging().take(mib, held);
        std::memset(staging, 0xff, mib);
        Copies copies(*channel);
        for (std::uint64_t at = 0; at < owned.slab.bytes; at += mib) {
            copies.add(Copy::Kind::write, owned.slab, at, mib, staging);
        }
        CHECK(copies.await() == 0);
        channel->write_staging().give_back(staging, mib, held);
    }
}

TEST_CASE("many workers copy concurrently, each with its own channel") {
    const auto device = open(mappings().back());
    const OwnedSlab owned(*device, 64 * mib);
    std::vector<std::thread> workers;
    const std::uint64_t count = std::clamp(std::thread::hardware_concurrency(), 3U, 12U);
    for (std::uint64_t number = 0; number < count; ++number) {
        workers.emplace_back([&, number] {
            const auto channel = device->open_channel(usual);
            exercise(*channel, owned.slab, number * 5 * mib, 5 * mib, 200, 300'000, number);
        });
    }
    for (std::thread& worker : workers) worker.join();
}

TEST_CASE("slabs beyond the mapped budget are not mapped, and the capacity limits all") {
    DeviceOptions options;
    options.mapped = 64 * mib;
    options.capacity = 128 * mib;
    const auto device = open(options);
    const OwnedSlab first(*device, 64 * mib);
    const OwnedSlab second(*device, 64 * mib);
    if (first.slab.cpu == nullptr) {
        MESSAGE("nothing is mapped: " << device->info().access);
    } else {
        CHECK(device->use(128 * mib).mapped == 64 * mib);
    }
    CHECK(second.slab.cpu == nullptr);
    Slab third;
    CHECK(device->allocate({.bytes = 64 * mib}, third) == Status::no_space);
    CHECK(device->available() == 0);
}

namespace {

// A line of CSV for each path and size: the median of a round.
int bench() {
    std::printf("mapped,path,kind,bytes,copies,p50_us,gb_per_s\n");
    for (const DeviceOptions& options : mappings()) {
        const auto device = open(options);
        const OwnedSlab owned(*device, 256 * mib);
        const bool mapped = owned.slab.cpu != nullptr;
        for (const NamedPolicy& named : policies()) {
            const std::string_view name = named.name;
            if (name == "engine batch" || name == "persistent kernel") continue;
            const auto channel = open_channel(*device, roomy, named.policy);
            for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write}) {
                const bool by_cpu = name == (kind == Copy::Kind::read ? "streaming loads"
                                                                      : "stores into the mapping");
                const bool other_direction =
                    name ==
                    (kind == Copy::Kind::read ? "stores into the mapping" : "streaming loads");
                if (other_direction || (by_cpu && !mapped)) continue;
                const std::pair<std::uint32_t, std::uint32_t> rounds[]{
                    {4096, 1}, {4096, 32}, {4096, 128}, {131072, 1}, {1 << 20, 1}, {1 << 20, 8}};
                for (const auto& [bytes, copies] : rounds) {
                    if (by_cpu && std::uint64_t{bytes} * copies > 4 * mib) continue;
                    const double us =
                        Meter(owned.slab, *channel)
                            .median_us({.kind = kind, .bytes = bytes, .copies = copies},
                                       std::chrono::milliseconds(100));
                    std::printf("%d,%s,%s,%u,%u,%.1f,%.2f\n", mapped ? 1 : 0, named.name,
                                kind == Copy::Kind::read ? "read" : "write", bytes, copies, us,
                                static_cast<double>(bytes) * copies / us / 1e3);
                    std::fflush(stdout);
                }
            }
        }
    }
    std::printf("%s", open(mappings().front())->calibrate().c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    spdlog::set_default_logger(spdlog::stderr_color_mt("gpunbd"));  // CSV goes to standard output
    std::string why_none;
    if (device_id(why_none).empty()) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    if (argc > 1 && std::string_view(argv[1]) == "--bench") return bench();
    const int result = doctest::Context(argc, argv).run();
    return result == 0 && argc == 1 ? bench() : result;
}
