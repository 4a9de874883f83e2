#include "storage/devices/host/host_device.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t mib = 1 << 20;

std::unique_ptr<Device> host(std::uint64_t capacity) {
    return open_host_device(0, {.reserve = 0, .capacity = capacity});
}

bool zeroes(const std::byte* at, std::uint64_t bytes) {
    return std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Pages of the system that are in memory.
std::size_t resident(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> map(bytes / page);
    REQUIRE(::mincore(slab.cpu + offset, bytes, map.data()) == 0);
    return static_cast<std::size_t>(
        std::count_if(map.begin(), map.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

TEST_CASE("host device: what it is") {
    const auto device = open_host_device(3, {});
    CHECK(device->number() == 3);
    CHECK(device->info().id == "host");
    CHECK(device->info().total > 0);
    CHECK(device->info().reserve == 512 * mib);
    CHECK(device->available() <= device->info().total);
    CHECK_FALSE(device->failed());
}

TEST_CASE("host device: capacity is exact and comes back") {
    const auto device = host(10 * mib);
    CHECK(device->available() == 10 * mib);
    Slab first;
    Slab second;
    Slab refused;
    REQUIRE(device->allocate(6 * mib, Provision::thin, first) == Status::ok);
    CHECK(device->available() == 4 * mib);
    CHECK(device->allocate(5 * mib, Provision::thin, refused) == Status::no_space);
    CHECK(refused.bytes == 0);
    CHECK(device->available() == 4 * mib);
    REQUIRE(device->allocate(4 * mib, Provision::thin, second) == Status::ok);
    CHECK(device->available() == 0);
    device->release(first);
    CHECK(first.bytes == 0);
    CHECK(first.cpu == nullptr);
    CHECK(device->available() == 6 * mib);
    REQUIRE(device->allocate(6 * mib, Provision::thin, first) == Status::ok);
    device->release(first);
    device->release(second);
    CHECK(device->available() == 10 * mib);
}

TEST_CASE("host device: capacity counts to the byte") {
    const auto device = host(mib - 1);
    Slab slab;
    CHECK(device->available() == mib - 1);
    CHECK(device->allocate(mib, Provision::thin, slab) == Status::no_space);
    CHECK(device->available() == mib - 1);
}

TEST_CASE("host device: the reserve is left alone") {
    const auto device = open_host_device(
        0, {.reserve = std::numeric_limits<std::uint64_t>::max() / 2, .capacity = 10 * mib});
    CHECK(device->available() == 0);
    Slab slab;
    CHECK(device->allocate(mib, Provision::thin, slab) == Status::no_space);
    CHECK(device->allocate(mib, Provision::full, slab) == Status::no_space);
}

TEST_CASE("host device: more than the machine has is refused, not promised") {
    const auto device = open_host_device(0, {.reserve = 0, .capacity = {}});
    Slab slab;
    CHECK(device->allocate(std::uint64_t{1} << 46, Provision::thin, slab) == Status::no_space);
    CHECK(device->allocate(std::uint64_t{1} << 46, Provision::full, slab) == Status::no_space);
    CHECK(slab.bytes == 0);
}

TEST_CASE("host device: a slab is zeroes, all of it the CPU's, and starts on a huge page") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        for (const std::uint64_t bytes : {64 * mib / 1024, mib, 2 * mib, 3 * mib + 4096, 8 * mib}) {
            CAPTURE(bytes);
            const auto device = host(16 * mib);
            Slab slab;
            REQUIRE(device->allocate(bytes, provision, slab) == Status::ok);
            CHECK(slab.bytes == bytes);
            CHECK(slab.address == reinterpret_cast<std::uintptr_t>(slab.cpu));
            CHECK(slab.resident == (provision == Provision::full));
            if (bytes >= 2 * mib) CHECK(slab.address % (2 * mib) == 0);
            CHECK(zeroes(slab.cpu, bytes));
            std::memset(slab.cpu, 0x5A, bytes);
            device->release(slab);
        }
    }
}

TEST_CASE("host device: full is resident from the start, thin is not") {
    const auto device = host(16 * mib);
    Slab thin;
    Slab full;
    REQUIRE(device->allocate(4 * mib, Provision::thin, thin) == Status::ok);
    REQUIRE(device->allocate(4 * mib, Provision::full, full) == Status::ok);
    CHECK(resident(thin, 0, 4 * mib) == 0);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    CHECK(resident(full, 0, 4 * mib) == 4 * mib / page);
    device->release(thin);
    device->release(full);
}

TEST_CASE("host device: discard gives memory back, and it reads as zeroes") {
    const auto device = host(16 * mib);
    Slab slab;
    REQUIRE(device->allocate(8 * mib, Provision::thin, slab) == Status::ok);
    std::memset(slab.cpu, 0x5A, 8 * mib);
    REQUIRE(device->discard(slab, 2 * mib, 2 * mib));
    CHECK(resident(slab, 2 * mib, 2 * mib) == 0);
    CHECK(zeroes(slab.cpu + 2 * mib, 2 * mib));
    CHECK(slab.cpu[2 * mib - 1] == std::byte{0x5A});
    CHECK(slab.cpu[4 * mib] == std::byte{0x5A});
    device->release(slab);

    // What was promised to be there stays there.
    REQUIRE(device->allocate(2 * mib, Provision::full, slab) == Status::ok);
    std::memset(slab.cpu, 0x5A, 2 * mib);
    CHECK_FALSE(device->discard(slab, 0, 2 * mib));
    device->release(slab);
}

TEST_CASE("host device: clear zeroes its range and nothing else") {
    const auto device = host(4 * mib);
    Slab slab;
    REQUIRE(device->allocate(mib, Provision::full, slab) == Status::ok);
    std::memset(slab.cpu, 0x5A, mib);
    REQUIRE(device->clear(slab, 65536, 65536) == Status::ok);
    CHECK(slab.cpu[65535] == std::byte{0x5A});
    CHECK(zeroes(slab.cpu + 65536, 65536));
    CHECK(slab.cpu[131072] == std::byte{0x5A});
    device->release(slab);
}

class Counter final : public CopyOwner {
 public:
    void copy_done(Copy& copy) override {
        CHECK(copy.status == Status::ok);
        ++done;
    }
    int done = 0;
};

TEST_CASE("host channel: zeroes are spread over polls") {
    constexpr std::size_t count = 4;
    constexpr std::uint32_t length = 3 << 20;
    const auto device = host(std::uint64_t{count} * length);
    const auto channel = device->open_channel({});
    std::vector<std::byte> memory(std::size_t{count} * length, std::byte{0x5A});
    Counter counter;
    std::vector<Copy> copies(count);
    for (std::size_t i = 0; i != count; ++i) {
        copies[i].kind = Copy::Kind::zero;
        copies[i].length = length;
        copies[i].cpu = memory.data() + i * length;
        copies[i].owner = &counter;
        channel->enqueue(copies[i]);
    }
    int polls = 0;
    for (; channel->busy(); ++polls) channel->poll();
    CHECK(counter.done == count);
    CHECK(polls == 2);
    CHECK(zeroes(memory.data(), memory.size()));
}

}  // namespace
}  // namespace gpunbd::storage::test
