// Channels of a real GPU: every path with any alignment, the order of stores and reads, slabs,
// threads, faults. Exits with 77 if there is no GPU. `--bench [WHAT [PATH]]` prints the cost of
// each path.
#include <doctest/doctest.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/gpu/policy.hpp"
#include "storage/devices/store.hpp"
#include "tests/gpu/channel_exercise.hpp"
#include "tests/gpu/kernel_calls.hpp"

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
        const OwnedSlab owned(*device, 64 * mib);
        CAPTURE(device->info().access);
        for (const NamedPolicy& named : policies()) {
            INFO(named.name);
            const auto channel = open_cuda_channel(*device, roomy, named.policy);
            exercise(*channel, owned.slab, 0, 64 * mib, 60, 8 * mib, 1);
            exercise(*channel, owned.slab, 4093, mib, 600, 70'000, 2);
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
        const OwnedSlab owned(*device, 64 * mib);
        CAPTURE(device->info().access);
        const auto channel = device->open_channel(roomy);
        CHECK(bytes_other_than(*channel, owned.slab, std::byte{0}) == 0);
        exercise(*channel, owned.slab, 0, 64 * mib, 60, 8 * mib, 1);
        exercise(*channel, owned.slab, 4093, mib, 600, 70'000, 2);
    }
}

TEST_CASE("every path reads the data of completed writes and fenced stores") {
    const auto device = open();
    const OwnedSlab owned(*device, 64 * mib);
    const Slab& slab = owned.slab;
    const auto engine = open_cuda_channel(*device, usual, only(PathKind::copy_engine));
    const auto kernel = open_cuda_channel(*device, usual, only(PathKind::kernel));
    const auto persistent = open_cuda_channel(*device, usual, only(PathKind::persistent_kernel));
    const auto by_cpu = open_cuda_channel(
        *device, usual,
        slab.cpu != nullptr ? only(PathKind::streaming_load) : only(PathKind::kernel));
    std::size_t held = 0;
    Random random(3);
    Bytes payload(65536);
    for (Channel* writer :
         {engine.get(), kernel.get(), persistent.get(), static_cast<Channel*>(nullptr)}) {
        if (writer == nullptr && slab.cpu == nullptr) continue;
        for (Channel* reader : {engine.get(), kernel.get(), persistent.get(), by_cpu.get()}) {
            CAPTURE(writer == nullptr);
            CAPTURE(writer == persistent.get());
            CAPTURE(reader == by_cpu.get());
            CAPTURE(reader == persistent.get());
            Copies writes(writer == nullptr ? *engine : *writer);
            Copies reads(*reader);
            std::byte* const in = engine->write_staging().take(65536, held = 0);
            std::byte* const out = reader->read_staging().take(65536, held = 0);
            std::size_t stale = 0;
            for (int i = 0; i < 3000; ++i) {
                const std::uint64_t length = random.length(i % 8 == 0 ? 65536 : 4096);
                const std::uint64_t offset = random.below(8192);  // reuses a few blocks
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
            engine->write_staging().give_back(in, 65536, held = 65536);
            reader->read_staging().give_back(out, 65536, held = 65536);
        }
    }
}

TEST_CASE("reads of another worker return the data of a fenced store") {
    const auto device = open();
    const OwnedSlab owned(*device, 2 * mib);
    if (owned.slab.cpu == nullptr) {
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
            std::byte* const to = owned.slab.cpu + round % 3 * 4096;
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
            copies.add(Copy::Kind::read, owned.slab, round % 3 * 4096, 4096, out);
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
            const OwnedSlab owned(*device, 64 * mib);
            if (owned.slab.cpu != nullptr) {
                Bytes line(mib);
                load_streaming(line.data(), owned.slab.cpu + 5 * mib, mib);
                CHECK(line == Bytes(mib));
            }
            CHECK(bytes_other_than(*channel, owned.slab, std::byte{0}) == 0);
            Copies copies(*channel);
            for (std::uint64_t at = 0; at < owned.slab.bytes; at += mib) {
                copies.add(Copy::Kind::write, owned.slab, at, mib, ones);
            }
            REQUIRE(copies.await() == 0);
            CHECK(bytes_other_than(*channel, owned.slab, std::byte{0xff}) == 0);
            REQUIRE(device->clear(owned.slab, 2 * mib, 2 * mib) == Status::ok);
            CHECK(bytes_other_than(*channel, owned.slab, std::byte{0xff}) == 2 * mib);
        }
    }
}

TEST_CASE("many workers copy concurrently, each with its own channel") {
    const auto device = open();
    constexpr std::uint64_t share = 8 * mib;
    constexpr std::uint64_t workers = 8;
    const OwnedSlab owned(*device, workers * share);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < workers; ++i) {
        threads.emplace_back([&, i] {
            const auto channel = device->open_channel(usual);
            exercise(*channel, owned.slab, i * share, share, 300, i % 2 == 0 ? 32768 : 2 * mib, i);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_CASE("requests make no ioctl or mmap calls") {
    const auto device = open();
    const OwnedSlab owned(*device, 64 * mib);
    for (const NamedPolicy& named : policies()) {
        const auto channel = open_cuda_channel(*device, roomy, named.policy);
        exercise(*channel, owned.slab, 0, 16 * mib, 20, mib, 5);
        Copies copies(*channel);
        std::size_t held = 0;
        std::byte* const in = channel->write_staging().take(8 * mib, held);
        std::byte* const out = channel->read_staging().take(8 * mib, held);
        gpunbd::tests::KernelCalls calls;
        for (int round = 0; round < 3000; ++round) {
            const std::size_t length = round % 16 == 0 ? mib : 4096;
            for (std::uint64_t i = 0; i < 8; ++i) {
                copies.add(Copy::Kind::read, owned.slab, i * mib, length, out + i * length);
                copies.add(Copy::Kind::write, owned.slab, (8 + i) * mib, length, in + i * length);
                copies.add(Copy::Kind::zero, owned.slab, (16 + i) * mib, length, nullptr);
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
    const OwnedSlab owned(*device, 2 * mib);
    const auto channel = open_cuda_channel(*device, usual, only(PathKind::copy_engine));
    std::size_t held = 0;
    std::byte* const staging = channel->read_staging().take(4096, held);
    Copies copies(*channel);
    copies.add(Copy::Kind::read, owned.slab, 0, 4096, staging);
    copies.add(Copy::Kind::read, owned.slab, owned.slab.bytes - 2048, 4096, staging);
    copies.add(Copy::Kind::read, owned.slab, 0, 4096, staging);
    CHECK(copies.await() == 1);
    CHECK_FALSE(device->failed());
    copies.add(Copy::Kind::read, owned.slab, 0, 4096, staging);
    CHECK(copies.await() == 0);
}

TEST_CASE("if a batch cannot be started, all its copies fail, and no others") {
    const auto device = open();
    const OwnedSlab owned(*device, 2 * mib);
    const auto channel = open_cuda_channel(*device, usual, only(PathKind::engine_batch));
    std::size_t held = 0;
    std::byte* const staging = channel->read_staging().take(4096, held);
    Copies copies(*channel);
    copies.add(Copy::Kind::read, owned.slab, 0, 2048, staging);
    copies.add(Copy::Kind::read, owned.slab, owned.slab.bytes - 1024, 2048, staging + 2048);
    CHECK(copies.await() == 2);
    CHECK_FALSE(device->failed());
    copies.add(Copy::Kind::read, owned.slab, 0, 2048, staging);
    copies.add(Copy::Kind::read, owned.slab, 2048, 2048, staging + 2048);
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
    const OwnedSlab owned(*device, 16 * mib);
    const auto channel = device->open_channel(usual);
    exercise(*channel, owned.slab, 0, 16 * mib, 300, mib, 6);
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

// --- benchmark -----------------------------------------------------------------------------------

namespace {

constexpr std::chrono::milliseconds per_row(15);

const char* name_of(Copy::Kind kind) {
    return kind == Copy::Kind::read ? "read" : kind == Copy::Kind::write ? "write" : "zero";
}

bool possible(PathKind path, Copy::Kind kind, std::uint32_t bytes, std::uint32_t copies) {
    const std::uint64_t sum = std::uint64_t{bytes} * copies;
    if (sum > roomy.pinned) return false;
    if (path == PathKind::streaming_load) return kind == Copy::Kind::read && sum <= mib;
    if (path == PathKind::mapping) return kind != Copy::Kind::read;
    return true;
}

void print_row(const char* what, PathKind path, const Round& round, std::size_t threads,
               double us) {
    const double per_second = 1e6 / us * round.copies * static_cast<double>(threads);
    std::printf("%s,%s,%s,%u,%u,%zu,%.2f,%.0f,%.3f\n", what, to_text(path), name_of(round.kind),
                round.bytes, round.copies, threads, us, per_second, per_second * round.bytes / 1e9);
}

// All threads run the same load on their own channels. Prints the mean of their medians.
void bench_threads(Device& device, const Slab& slab, PathKind path, std::size_t count) {
    std::vector<std::unique_ptr<Channel>> channels(count);
    std::vector<double> us(count);
    const auto everywhere = [&](auto work) {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { work(i); });
        for (std::thread& thread : threads) thread.join();
    };
    everywhere([&](std::size_t i) { channels[i] = open_cuda_channel(device, roomy, only(path)); });
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write}) {
        for (const std::uint32_t bytes : {4096U, 65536U, 131072U, 1U << 20}) {
            for (const std::uint32_t copies : {1U, 8U, 32U}) {
                if (!possible(path, kind, bytes, copies)) continue;
                const Round round{.kind = kind, .bytes = bytes, .copies = copies};
                everywhere([&](std::size_t i) {
                    us[i] = Meter(slab, *channels[i]).median_us(round, 3 * per_row);
                });
                double sum = 0;
                for (const double each : us) sum += each;
                print_row("threads", path, round, count, sum / static_cast<double>(count));
            }
        }
    }
}

// The cost of a single small read while another channel keeps the copy engines busy.
void bench_busy(Device& device, const Slab& slab) {
    for (const PathKind path : {PathKind::copy_engine, PathKind::kernel,
                                PathKind::persistent_kernel, PathKind::streaming_load}) {
        if (path == PathKind::streaming_load && slab.cpu == nullptr) continue;
        const auto channel = open_cuda_channel(device, roomy, only(path));
        std::atomic<bool> stop{false};
        std::thread busy([&] {
            const auto other = open_cuda_channel(device, roomy, only(PathKind::copy_engine));
            Meter meter(slab, *other);
            const Round round{.kind = Copy::Kind::read, .bytes = 1 << 20, .copies = 16};
            while (!stop) meter.median_us(round, per_row);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        for (const std::uint32_t bytes : {512U, 4096U, 16384U, 65536U}) {
            const Round round{.kind = Copy::Kind::read, .bytes = bytes, .copies = 1};
            print_row("busy", path, round, 1, Meter(slab, *channel).median_us(round, 3 * per_row));
        }
        stop = true;
        busy.join();
    }
}

// Concurrent long reads and writes, each on its own channel.
void bench_both_ways(Device& device, const Slab& slab) {
    for (const std::uint32_t bytes : {256U << 10, 1U << 20, 4U << 20}) {
        double us[2] = {};
        const Copy::Kind kinds[2] = {Copy::Kind::read, Copy::Kind::write};
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i] {
                const auto channel = open_cuda_channel(device, roomy, only(PathKind::copy_engine));
                const Round round{.kind = kinds[i], .bytes = bytes, .copies = 8};
                us[i] = Meter(slab, *channel).median_us(round, 20 * per_row);
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (std::size_t i = 0; i < 2; ++i) {
            print_row("both ways", PathKind::copy_engine, {kinds[i], bytes, 8}, 1, us[i]);
        }
    }
}

// Single 4 KiB reads at intervals of `gap`: percentiles of their latency.
void bench_paced(Channel& channel, const Slab& slab, std::chrono::microseconds gap,
                 const char* beside) {
    std::size_t held = 0;
    std::byte* const staging = channel.read_staging().take(4096, held);
    Copies copies(channel);
    std::vector<double> us;
    const Clock::time_point end = Clock::now() + 20 * per_row;
    for (std::uint64_t i = 0; Clock::now() < end; ++i) {
        const Clock::time_point begin = Clock::now();
        copies.add(Copy::Kind::read, slab, i % 1000 * 65536, 4096, staging);
        copies.await();
        const Clock::time_point done = Clock::now();
        us.push_back(std::chrono::duration<double, std::micro>(done - begin).count());
        while (Clock::now() < done + gap) {
        }
    }
    std::sort(us.begin(), us.end());
    const auto at = [&](double share) {
        return us[static_cast<std::size_t>(share * static_cast<double>(us.size() - 1))];
    };
    std::fprintf(stderr,
                 "4 KiB reads %4lld us apart%s: p50 %.1f, p99 %.1f, p99.9 %.1f, max %.1f us\n",
                 static_cast<long long>(gap.count()), beside, at(0.5), at(0.99), at(0.999), at(1));
    channel.read_staging().give_back(staging, 4096, held);
}

void bench_pauses(Device& device, const Slab& slab) {
    const auto channel = device.open_channel(usual);
    for (const int gap : {0, 20, 50, 100, 300}) {
        bench_paced(*channel, slab, std::chrono::microseconds(gap), "");
    }
    std::atomic<bool> stop{false};
    std::uint64_t count = 0;
    std::thread slabs([&] {
        for (; !stop; ++count) const OwnedSlab other(device, 64 * mib);
    });
    bench_paced(*channel, slab, std::chrono::microseconds(0), ", slabs of 64 MiB come and go");
    stop = true;
    slabs.join();
    std::fprintf(stderr, "%llu slabs came and went\n", static_cast<unsigned long long>(count));
}

void bench_alone(Device& device, const Slab& slab, PathKind path) {
    const auto channel = open_cuda_channel(device, roomy, only(path));
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
        for (std::uint32_t bytes = 512; bytes <= 4 * mib; bytes *= 2) {
            for (const std::uint32_t copies : {1U, 2U, 8U, 32U, 128U}) {
                if (!possible(path, kind, bytes, copies)) continue;
                const Round round{.kind = kind, .bytes = bytes, .copies = copies};
                print_row("alone", path, round, 1, Meter(slab, *channel).median_us(round, per_row));
            }
        }
    }
}

// `what`: alone, threads, busy, both paths or pauses; empty: all. `path_name`: one path; empty:
// all.
int bench(std::string_view what, std::string_view path_name) {
    const auto device = open();
    const OwnedSlab owned(*device, 256 * mib);
    const bool mapped = owned.slab.cpu != nullptr;
    std::fprintf(stderr, "%s, %s\n", device->info().name.c_str(), device->info().access.c_str());
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::puts("what,path,kind,bytes,copies,threads,median_us,copies_per_second,GB_per_second");
    const auto wanted = [&](std::string_view name) { return what.empty() || what == name; };
    for (const PathKind path :
         {PathKind::copy_engine, PathKind::engine_batch, PathKind::kernel,
          PathKind::persistent_kernel, PathKind::streaming_load, PathKind::mapping}) {
        const bool needs_mapping = path == PathKind::streaming_load || path == PathKind::mapping;
        if (needs_mapping && !mapped) continue;
        if (!path_name.empty() && path_name != to_text(path)) continue;
        if (wanted("alone")) bench_alone(*device, owned.slab, path);
        for (const std::size_t threads : {1U, 4U, 12U}) {
            if (wanted("threads")) bench_threads(*device, owned.slab, path, threads);
        }
    }
    if (wanted("busy")) bench_busy(*device, owned.slab);
    if (wanted("both ways")) bench_both_ways(*device, owned.slab);
    if (wanted("pauses")) bench_pauses(*device, owned.slab);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    spdlog::set_default_logger(spdlog::stderr_color_mt("gpunbd"));  // CSV goes to standard output
    std::string why_none;
    if (cuda_device_count(why_none) == 0) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    if (mode == "--fail") return fail_for_good();
    if (mode == "--bench") return bench(argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
    return doctest::Context(argc, argv).run();
}
