// Channels of a real GPU: every path with any alignment, the order of stores and reads, slabs,
// threads, faults. Exits with 77 if there is no GPU.
#include <sys/wait.h>
#include <unistd.h>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/gpu/policy.hpp"
#include "storage/devices/store.hpp"
#include "tests/gpu/channel_exercise.hpp"
#include "tests/gpu/kernel_calls.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd::storage;
using namespace gpunbd::storage::cuda;
using namespace gpunbd::test;

std::unique_ptr<Device> open(const DeviceOptions& options = {}) {
    return cuda_driver().open("cuda:0", 0, options);
}

std::unique_ptr<Channel> open_cuda_channel(Device& device, ChannelOptions options,
                                           const Policy& policy) {
    options.policy = &policy;
    return device.open_channel(options);
}

}  // namespace

TEST_CASE("every path copies any range at any alignment") {
    for (const bool mapping : {true, false}) {
        DeviceOptions options;
        if (!mapping) options.mapped = 0;
        const auto device = open(options);
        const OwnedSlab owned(*device, {.bytes = 64 * mib});
        CAPTURE(device->info().access);
        for (const NamedPolicy& named : policies()) {
            INFO(named.name);
            const auto channel = open_cuda_channel(*device, roomy, named.policy);
            exercise(*channel, owned, 0, 64 * mib, 60, 8 * mib, 1);
            exercise(*channel, owned, 4093, mib, 600, 70'000, 2);
        }
    }
}

TEST_CASE("the device copies within and between its slabs") {
    for (const std::uint64_t mapped : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        DeviceOptions options;
        options.mapped = mapped;
        exercise_device_copies(*open(options));
    }
}

TEST_CASE("gpu_use copy-engines uses no kernels") {
    for (const bool mapping : {true, false}) {
        DeviceOptions options;
        options.gpu_use = GpuUse::copy_engines;
        if (!mapping) options.mapped = 0;
        const auto device = open(options);
        const OwnedSlab owned(*device, {.bytes = 64 * mib});
        CAPTURE(device->info().access);
        const auto channel = device->open_channel(roomy);
        CHECK(bytes_other_than(*channel, owned, std::byte{0}) == 0);
        exercise(*channel, owned, 0, 64 * mib, 60, 8 * mib, 1);
        exercise(*channel, owned, 4093, mib, 600, 70'000, 2);
    }
}

TEST_CASE("every path reads the data of completed writes and fenced stores") {
    const auto device = open();
    const OwnedSlab owned(*device, {.bytes = 64 * mib});
    const Slab& slab = owned;
    const auto engine = open_cuda_channel(*device, usual, only(PathKind::copy_engine));
    const auto kernel = open_cuda_channel(*device, usual, only(PathKind::kernel));
    const auto persistent = open_cuda_channel(*device, usual, only(PathKind::persistent_kernel));
    const auto by_cpu = open_cuda_channel(
        *device, usual,
        slab.cpu != nullptr ? only(PathKind::streaming_load) : only(PathKind::kernel));
    exercise_visibility(slab, {engine.get(), kernel.get(), persistent.get()},
                        {engine.get(), kernel.get(), persistent.get(), by_cpu.get()}, 1);
}

TEST_CASE("reads of another worker return the data of a fenced store") {
    const auto device = open();
    const OwnedSlab owned(*device, {.bytes = 2 * mib});
    if (owned.cpu == nullptr) {
        MESSAGE("SKIPPED: nothing is mapped: " << device->info().access);
        return;
    }
    constexpr std::uint64_t rounds = 6000;
    std::atomic<std::uint64_t> stored{0};
    std::atomic<std::uint64_t> seen{0};
    std::thread storing([&] {
        Bytes payload(4096);
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            std::memset(payload.data(), static_cast<int>(round % 251), payload.size());
            std::byte* const to = owned.cpu + round % 3 * 4096;
            store_streaming(to, payload.data(), payload.size());
            store_fence();
            stored.store(round, std::memory_order_release);
            while (seen.load(std::memory_order_acquire) != round) {
            }
        }
    });
    {
        std::vector<std::unique_ptr<Channel>> channels;
        for (const PathKind path : {PathKind::copy_engine, PathKind::engine_batch, PathKind::kernel,
                                    PathKind::persistent_kernel, PathKind::streaming_load}) {
            channels.push_back(open_cuda_channel(*device, usual, only(path)));
        }
        std::size_t stale = 0;
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            Channel& channel = *channels[round % channels.size()];
            std::size_t held = 0;
            std::byte* const out = channel.read_staging().take(4096, held);
            while (stored.load(std::memory_order_acquire) != round) {
            }
            Copies copies(channel);
            copies.add(Copy::Kind::read, owned, round % 3 * 4096, 4096, out);
            if (copies.await() != 0) ++stale;
            const auto value = static_cast<std::byte>(round % 251);
            if (!std::all_of(out, out + 4096, [&](std::byte b) { return b == value; })) ++stale;
            channel.read_staging().give_back(out, 4096, held);
            seen.store(round, std::memory_order_release);
        }
        storing.join();
        CHECK(stale == 0);
    }
}

TEST_CASE("slabs beyond the mapped budget are not mapped, and the capacity limits all") {
    DeviceOptions options;
    options.capacity = 256 * mib;
    options.mapped = 128 * mib;
    const auto device = open(options);
    CHECK(device->available() == 256 * mib);
    std::vector<Slab> slabs(4);
    for (Slab& slab : slabs) {
        REQUIRE(device->allocate({.bytes = 64 * mib}, slab) == Status::ok);
    }
    const bool mapped = slabs[0].cpu != nullptr;
    CHECK((slabs[1].cpu != nullptr) == mapped);
    CHECK(slabs[2].cpu == nullptr);
    CHECK(slabs[3].cpu == nullptr);
    CHECK(device->available() == 0);
    Slab beyond;
    CHECK(device->allocate({.bytes = 2 * mib}, beyond) == Status::no_space);
    CHECK(beyond.bytes == 0);
    {
        const auto channel = device->open_channel(usual);
        for (const Slab& slab : slabs) {
            CHECK(channel->receives_into(slab, 4096) == (slab.cpu != nullptr));
            exercise(*channel, slab, 0, slab.bytes, 20, mib, 4);
        }
    }
    device->release(slabs[0]);
    CHECK(device->allocate({.bytes = 64 * mib}, slabs[0]) == Status::ok);
    CHECK((slabs[0].cpu != nullptr) == mapped);
    for (Slab& slab : slabs) device->release(slab);
    CHECK(device->available() == 256 * mib);
}

TEST_CASE("slabs can be allocated until the GPU is full") {
    const auto device = open();
    const std::uint64_t before = device->available();
    std::vector<Slab> slabs;
    std::size_t mapped = 0;
    Status status = Status::ok;
    for (Slab slab; (status = device->allocate({.bytes = 1024 * mib, .provision = Provision::full},
                                               slab)) == Status::ok;) {
        if (slab.cpu != nullptr) ++mapped;
        slabs.push_back(std::move(slab));
    }
    CHECK(status == Status::no_space);
    CHECK_FALSE(device->failed());
    CHECK(device->available() < 1024 * mib);
    CHECK(slabs.size() >= before / (1024 * mib) - 2);
    MESSAGE(slabs.size() << " slabs of 1 GiB, of which " << mapped << " are mapped");
    {
        const auto channel = device->open_channel(usual);
        for (std::size_t i = 0; i < slabs.size(); i += 8) {
            exercise(*channel, slabs[i], 1000 * mib, 16 * mib, 10, mib, i);
        }
    }
    for (Slab& slab : slabs) device->release(slab);
    CHECK(device->available() + 256 * mib > before);
}

TEST_CASE("a slab reads as zeroes, whatever its memory contained before") {
    for (const bool mapping : {true, false}) {
        DeviceOptions options;
        if (!mapping) options.mapped = 0;
        const auto device = open(options);
        const auto channel = open_cuda_channel(*device, usual, only(PathKind::copy_engine));
        std::size_t held = 0;
        std::byte* const ones = channel->write_staging().take(mib, held);
        std::memset(ones, 0xff, mib);
        for (int round = 0; round < 3; ++round) {
            const OwnedSlab owned(*device, {.bytes = 64 * mib});
            if (owned.cpu != nullptr) {
                Bytes line(mib);
                load_streaming(line.data(), owned.cpu + 5 * mib, mib);
                CHECK(line == Bytes(mib));
            }
            CHECK(bytes_other_than(*channel, owned, std::byte{0}) == 0);
            Copies copies(*channel);
            for (std::uint64_t at = 0; at < owned.bytes; at += mib) {
                copies.add(Copy::Kind::write, owned, at, mib, ones);
            }
            REQUIRE(copies.await() == 0);
            CHECK(bytes_other_than(*channel, owned, std::byte{0xff}) == 0);
            REQUIRE(device->clear(owned, 2 * mib, 2 * mib) == Status::ok);
            CHECK(bytes_other_than(*channel, owned, std::byte{0xff}) == 2 * mib);
        }
    }
}

TEST_CASE("many workers copy concurrently, each with its own channel") {
    const auto device = open();
    constexpr std::uint64_t share = 8 * mib;
    constexpr std::uint64_t workers = 8;
    const OwnedSlab owned(*device, {.bytes = workers * share});
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < workers; ++i) {
        threads.emplace_back([&, i] {
            const auto channel = device->open_channel(usual);
            exercise(*channel, owned, i * share, share, 300, i % 2 == 0 ? 32768 : 2 * mib, i);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_CASE("requests make no ioctl or mmap calls") {
    const auto device = open();
    const OwnedSlab owned(*device, {.bytes = 64 * mib});
    for (const NamedPolicy& named : policies()) {
        const auto channel = open_cuda_channel(*device, roomy, named.policy);
        exercise(*channel, owned, 0, 16 * mib, 20, mib, 5);
        Copies copies(*channel);
        std::size_t held = 0;
        std::byte* const in = channel->write_staging().take(8 * mib, held);
        std::byte* const out = channel->read_staging().take(8 * mib, held);
        gpunbd::tests::KernelCalls calls;
        for (int round = 0; round < 3000; ++round) {
            const std::size_t length = round % 16 == 0 ? mib : 4096;
            for (std::uint64_t i = 0; i < 8; ++i) {
                copies.add(Copy::Kind::read, owned, i * mib, length, out + i * length);
                copies.add(Copy::Kind::write, owned, (8 + i) * mib, length, in + i * length);
                copies.add(Copy::Kind::zero, owned, (16 + i) * mib, length, nullptr);
            }
            REQUIRE(copies.await() == 0);
        }
        calls.stop();
        // Calls of the driver's own thread are listed, but delay no request.
        if (const std::string text = calls.text(); !text.empty()) {
            MESSAGE(named.name << ", this thread is " << ::gettid() << ":\n" << text);
        }
        INFO(named.name);
        CHECK(calls.ioctls() == 0);
        CHECK(calls.maps() == 0);
    }
}

TEST_CASE("a copy that cannot be started fails alone") {
    const auto device = open();
    const OwnedSlab owned(*device, {.bytes = 2 * mib});
    const auto channel = open_cuda_channel(*device, usual, only(PathKind::copy_engine));
    std::size_t held = 0;
    std::byte* const staging = channel->read_staging().take(4096, held);
    Copies copies(*channel);
    copies.add(Copy::Kind::read, owned, 0, 4096, staging);
    copies.add(Copy::Kind::read, owned, owned.bytes - 2048, 4096, staging);
    copies.add(Copy::Kind::read, owned, 0, 4096, staging);
    CHECK(copies.await() == 1);
    CHECK_FALSE(device->failed());
    copies.add(Copy::Kind::read, owned, 0, 4096, staging);
    CHECK(copies.await() == 0);
}

TEST_CASE("if a batch cannot be started, all its copies fail, and no others") {
    const auto device = open();
    const OwnedSlab owned(*device, {.bytes = 2 * mib});
    const auto channel = open_cuda_channel(*device, usual, only(PathKind::engine_batch));
    std::size_t held = 0;
    std::byte* const staging = channel->read_staging().take(4096, held);
    Copies copies(*channel);
    copies.add(Copy::Kind::read, owned, 0, 2048, staging);
    copies.add(Copy::Kind::read, owned, owned.bytes - 1024, 2048, staging + 2048);
    CHECK(copies.await() == 2);
    CHECK_FALSE(device->failed());
    copies.add(Copy::Kind::read, owned, 0, 2048, staging);
    copies.add(Copy::Kind::read, owned, 2048, 2048, staging + 2048);
    CHECK(copies.await() == 0);
}

TEST_CASE("calibration finds a policy, and its result can be restored") {
    const auto device = open();
    const Clock::time_point begin = Clock::now();
    CHECK(device->calibration_state().empty());
    const std::string table = device->calibrate();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    MESSAGE("calibrated in " << seconds << " s\n" << table);
    const std::string state = device->calibration_state();
    const auto again = open();
    CHECK(again->restore_calibration(state));
    CHECK(again->calibration_state() == state);
    CHECK_FALSE(open({.gpu_use = GpuUse::all})->restore_calibration(state));
    const OwnedSlab owned(*device, {.bytes = 16 * mib});
    const auto channel = device->open_channel(usual);
    exercise(*channel, owned, 0, 16 * mib, 300, mib, 6);
}

// --- a device that fails -------------------------------------------------------------------------

namespace {

// The error persists in its process, so this test runs in a process of its own. Exit status 0:
// success.
int fail_for_good() {
    auto device = open();
    Slab slab;
    if (device->allocate({.bytes = 64 * mib}, slab) != Status::ok) return 10;
    std::atomic<bool> stop{false};
    std::atomic<int> troubles{0};
    std::atomic<int> ready{0};
    const auto work = [&](PathKind path, std::uint32_t length) {
        const auto channel = open_cuda_channel(*device, usual, only(path));
        std::size_t held = 0;
        std::byte* const staging = channel->read_staging().take(8 * std::size_t{length}, held);
        Copies copies(*channel);
        ++ready;
        std::size_t failed = 0;
        while (!stop) {
            for (std::uint32_t i = 0; i < 8; ++i) {
                copies.add(Copy::Kind::read, slab, i * mib, length,
                           staging + std::size_t{i} * length);
            }
            failed += copies.await();  // throws if one does not end
        }
        if (failed == 0) ++troubles;
    };
    std::thread engine(work, PathKind::copy_engine, 1 << 20);
    std::thread kernel(work, PathKind::kernel, 4096);
    while (ready != 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));

    auto channel = open_cuda_channel(*device, usual, only(PathKind::kernel));
    std::size_t held = 0;
    std::byte* const staging = channel->read_staging().take(4096, held);
    Slab nowhere;
    nowhere.address = 0x7eee'0000'0000;
    Copies copies(*channel);
    const Clock::time_point begin = Clock::now();
    copies.add(Copy::Kind::write, nowhere, 0, 4096, staging);
    if (copies.await() != 1) return 11;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("the fault was noticed after %.1f ms\n", seconds * 1e3);
    if (seconds > 10) return 12;  // the machine may stall meanwhile
    if (!device->failed()) return 13;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
    engine.join();
    kernel.join();
    if (troubles != 0) return 14;

    copies.add(Copy::Kind::read, slab, 0, 4096, staging);
    if (copies.await() != 1) return 15;
    Slab more;
    if (device->allocate({.bytes = 2 * mib}, more) != Status::io_error) return 16;
    if (device->clear(slab, 0, 4096) != Status::io_error) return 17;
    channel.reset();
    device->release(slab);
    device.reset();
    return 0;
}

}  // namespace

TEST_CASE("after a fault on the device every copy ends with an error and nothing hangs") {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(150);
        ::execl("/proc/self/exe", "cuda_channel_tests", "--fail", nullptr);
        ::_exit(99);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

int main(int argc, char** argv) {
    std::string why_none;
    if (cuda_device_count(why_none) == 0) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    if (argc > 1 && std::string_view(argv[1]) == "--fail") return fail_for_good();
    return doctest::Context(argc, argv).run();
}
