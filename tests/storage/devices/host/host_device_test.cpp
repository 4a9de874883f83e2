#include "storage/devices/host/host_device.hpp"
#include "tests/storage/devices/host/fake_machine.hpp"
#include "tests/storage/owned_slab.hpp"
#include "tests/test.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

namespace gpunbd::storage::test {
namespace {

std::unique_ptr<Device> host(std::uint64_t capacity) {
    return open_host_device(0, {.reserve = 0, .capacity = capacity});
}

bool zeroes(const std::byte* at, std::uint64_t bytes) {
    return std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Whether this kernel allocates memory for pages that are only read: it then has no zero page.
bool reading_allocates() {
    constexpr std::size_t bytes = 16 * mib;
    const auto resident_pages = [] {
        std::size_t all = 0;
        std::size_t resident = 0;
        std::ifstream("/proc/self/statm") >> all >> resident;
        return resident;
    };
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    const std::size_t before = resident_pages();
    CHECK(zeroes(static_cast<const std::byte*>(at), bytes));
    const std::size_t after = resident_pages();
    ::munmap(at, bytes);
    return after >= before + bytes / 2 / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// VmFlags of the mapping that starts at `at` (proc_pid_smaps(5)).
std::string mapping_flags(const std::byte* at) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    const std::string head = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(at));
    while (std::getline(maps, line) && !line.starts_with(head)) continue;
    while (std::getline(maps, line) && !line.starts_with("VmFlags:")) continue;
    return line;
}

// Returns the number of resident memory pages.
std::size_t resident(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> map(bytes / page);
    REQUIRE(::mincore(slab.cpu + offset, bytes, map.data()) == 0);
    return static_cast<std::size_t>(
        std::count_if(map.begin(), map.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

TEST_CASE("host device: reports its properties") {
    const auto device = open_host_device(3, {});
    CHECK(device->number() == 3);
    CHECK(device->info().id == "host");
    CHECK(device->info().total > 0);
    CHECK(device->info().reserve == 512 * mib);
    CHECK(device->available() <= device->info().total);
    CHECK_FALSE(device->failed());
}

TEST_CASE("host device: its capacity is exact, and released memory is available again") {
    const auto device = host(10 * mib);
    CHECK(device->available() == 10 * mib);
    Slab first;
    Slab second;
    Slab refused;
    REQUIRE(device->allocate({.bytes = 6 * mib}, first) == Status::ok);
    CHECK(device->available() == 4 * mib);
    CHECK(device->allocate({.bytes = 5 * mib}, refused) == Status::no_space);
    CHECK(refused.bytes == 0);
    CHECK(device->available() == 4 * mib);
    REQUIRE(device->allocate({.bytes = 4 * mib}, second) == Status::ok);
    CHECK(device->available() == 0);
    device->release(first);
    CHECK(first.bytes == 0);
    CHECK(first.cpu == nullptr);
    CHECK(device->available() == 6 * mib);
    REQUIRE(device->allocate({.bytes = 6 * mib}, first) == Status::ok);
    device->release(first);
    device->release(second);
    CHECK(device->available() == 10 * mib);
    CHECK(host(mib - 1)->allocate({.bytes = mib}, refused) == Status::no_space);
}

TEST_CASE("host device: the causes of too little memory are named") {
    const FakeMachine machine;
    CHECK_THROWS_WITH(machine.host(), doctest::Contains("mount /proc"));
    machine.set_available(100 * mib);
    CHECK(machine.host()->info().memory.empty());
    machine.set_group_limit(64 * mib);
    CHECK(machine.host()->info().memory == "limited to 64 MiB by its control group");
}

// The system allocates memory when it is touched, so promised memory must not be promised again.
TEST_CASE("host device: promised memory is not available to others, touched or not") {
    const FakeMachine machine;
    machine.set_available(100 * mib);
    const auto device = machine.host(20 * mib);
    Slab first;
    Slab second;
    Slab refused;
    CHECK(device->available() == 80 * mib);
    REQUIRE(device->allocate({.bytes = 64 * mib}, first) == Status::ok);
    CHECK(device->available() == 16 * mib);
    CHECK(device->allocate({.bytes = 16 * mib + 4096}, refused) == Status::no_space);
    CHECK(device->allocate({.bytes = 32 * mib, .provision = Provision::full}, refused) ==
          Status::no_space);
    // Touched memory is not available on the machine any more, and is no promise any more.
    std::memset(first.cpu, 1, 40 * mib);
    CHECK(device->available() == 56 * mib);
    machine.set_available(60 * mib);
    CHECK(device->available() == 16 * mib);
    CHECK(device->allocate({.bytes = 16 * mib + 4096}, refused) == Status::no_space);
    REQUIRE(device->allocate({.bytes = 16 * mib}, second) == Status::ok);
    CHECK(device->available() == 0);
    // Discarded memory is promised again.
    REQUIRE(device->discard(first, 0, 10 * mib));
    machine.set_available(70 * mib);
    CHECK(device->available() == 0);
    // Memory that was only read has not been allocated if the kernel maps its zero page.
    CHECK(zeroes(second.cpu, 16 * mib));
    CHECK(device->available() == (reading_allocates() ? 16 * mib : 0));
    device->release(second);
    CHECK(device->available() == 16 * mib);
    // 30 MiB of it are freed.
    device->release(first);
    machine.set_available(100 * mib);
    CHECK(device->available() == 80 * mib);
}

TEST_CASE("host device: memory that is resident from the start is not counted as promised") {
    const FakeMachine machine;
    machine.set_available(100 * mib);
    const auto device = machine.host();
    const OwnedSlab slab(*device, {.bytes = 32 * mib, .provision = Provision::full});
    machine.set_available(68 * mib);
    CHECK(device->available() == 68 * mib);
}

// More slabs than one allocation checks, all touched since they were allocated.
TEST_CASE("host device: promises are checked in turn, so that allocations do not fail for long") {
    constexpr std::uint64_t count = 200;
    const FakeMachine machine;
    machine.set_available(count * 2 * mib);
    const auto device = machine.host();
    std::vector<Slab> slabs(count);
    for (Slab& slab : slabs) {
        REQUIRE(device->allocate({.bytes = mib}, slab) == Status::ok);
    }
    for (const Slab& slab : slabs) std::memset(slab.cpu, 1, mib);
    machine.set_available(10 * mib);
    Slab one;
    int refused = 0;
    while (device->allocate({.bytes = mib}, one) != Status::ok) ++refused;
    CHECK(refused <= 3);
    device->release(one);
    for (Slab& slab : slabs) device->release(slab);
}

TEST_CASE("host device: the reserve is not allocated") {
    const auto device = open_host_device(
        0, {.reserve = std::numeric_limits<std::uint64_t>::max() / 2, .capacity = 10 * mib});
    CHECK(device->available() == 0);
    Slab slab;
    CHECK(device->allocate({.bytes = mib}, slab) == Status::no_space);
    CHECK(device->allocate({.bytes = mib, .provision = Provision::full}, slab) == Status::no_space);
}

TEST_CASE("host device: more memory than the machine has is refused, not promised") {
    const auto device = open_host_device(0, {.reserve = 0, .capacity = {}});
    Slab slab;
    for (const Provision provision : {Provision::thin, Provision::full}) {
        for (const bool kept : {false, true}) {
            CHECK(device->allocate(
                      {.bytes = std::uint64_t{1} << 46, .provision = provision, .kept = kept},
                      slab) == Status::no_space);
            CHECK_FALSE(slab.descriptor);
            CHECK(slab.bytes == 0);
        }
    }
}

TEST_CASE("host device: a slab is zeroed, CPU-addressable and aligned to a huge page") {
    for (const Provision provision : {Provision::thin, Provision::full}) {
        for (const std::uint64_t bytes : {64 * mib / 1024, mib, 2 * mib, 3 * mib + 4096, 8 * mib}) {
            CAPTURE(bytes);
            const auto device = host(16 * mib);
            const OwnedSlab slab(*device, {.bytes = bytes, .provision = provision});
            CHECK(slab.bytes == bytes);
            CHECK(slab.address ==
                  reinterpret_cast<std::uintptr_t>(static_cast<std::byte*>(slab.cpu)));
            CHECK(slab.resident == (provision == Provision::full));
            if (bytes >= 2 * mib) CHECK(slab.address % (2 * mib) == 0);
            CHECK(zeroes(slab.cpu, bytes));
            std::memset(slab.cpu, 0x5A, bytes);
        }
    }
}

TEST_CASE("host device: slabs are not inherited by child processes") {
    for (const bool kept : {false, true}) {
        CAPTURE(kept);
        const auto device = host(16 * mib);
        const OwnedSlab slab(*device, {.bytes = 4 * mib, .kept = kept});
        CHECK(contains(mapping_flags(slab.cpu), " dc"));  // "do not copy"
    }
}

TEST_CASE("host device: full slabs are resident from the start, thin ones are not") {
    const auto device = host(16 * mib);
    const OwnedSlab thin(*device, {.bytes = 4 * mib});
    const OwnedSlab full(*device, {.bytes = 4 * mib, .provision = Provision::full});
    CHECK(resident(thin, 0, 4 * mib) == 0);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    CHECK(resident(full, 0, 4 * mib) == 4 * mib / page);
}

TEST_CASE("host device: discard frees memory, which reads as zeroes afterwards") {
    const auto device = host(16 * mib);
    const OwnedSlab slab(*device, {.bytes = 8 * mib});
    std::memset(slab.cpu, 0x5A, 8 * mib);
    REQUIRE(device->discard(slab, 2 * mib, 2 * mib));
    CHECK(resident(slab, 2 * mib, 2 * mib) == 0);
    CHECK(zeroes(slab.cpu + 2 * mib, 2 * mib));
    CHECK(slab.cpu[2 * mib - 1] == std::byte{0x5A});
    CHECK(slab.cpu[4 * mib] == std::byte{0x5A});

    // Fully provisioned slabs stay resident.
    const OwnedSlab full(*device, {.bytes = 2 * mib, .provision = Provision::full});
    std::memset(full.cpu, 0x5A, 2 * mib);
    CHECK_FALSE(device->discard(full, 0, 2 * mib));
}

TEST_CASE("host device: clear zeroes only its range") {
    const auto device = host(4 * mib);
    const OwnedSlab slab(*device, {.bytes = mib, .provision = Provision::full});
    std::memset(slab.cpu, 0x5A, mib);
    REQUIRE(device->clear(slab, 65536, 65536) == Status::ok);
    CHECK(slab.cpu[65535] == std::byte{0x5A});
    CHECK(zeroes(slab.cpu + 65536, 65536));
    CHECK(slab.cpu[131072] == std::byte{0x5A});
}

}  // namespace
}  // namespace gpunbd::storage::test
