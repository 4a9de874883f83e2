#include "storage/devices/gpu/managed_path.hpp"

#include <sys/mman.h>

#include "tests/storage/devices/gpu/gpu_channel_rig.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

// Memory with a second half that cannot be accessed, like managed memory after its GPU has failed.
class HalfAccessible {
 public:
    static constexpr std::size_t half = 256 * kib;

    HalfAccessible()
        : memory_(static_cast<std::byte*>(
              ::mmap(nullptr, 2 * half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        REQUIRE(memory_ != MAP_FAILED);
        REQUIRE(::mprotect(memory_, half, PROT_READ | PROT_WRITE) == 0);
    }
    HalfAccessible(const HalfAccessible&) = delete;
    HalfAccessible& operator=(const HalfAccessible&) = delete;
    ~HalfAccessible() { ::munmap(memory_, 2 * half); }

    std::byte* get() const { return memory_; }

 private:
    std::byte* memory_;
};

class Owner final : public CopyOwner {
    void copy_done(Copy& /*copy*/) override {}
};

TEST_CASE("managed path: copies by the CPU, and fails where memory cannot be accessed") {
    const HalfAccessible memory;
    std::vector<std::byte> staging(HalfAccessible::half, std::byte{7});
    ManagedPath path;
    Owner owner;
    const auto run = [&](Copy::Kind kind, std::size_t offset, std::uint32_t length) {
        Copy copy;
        copy.prepare(kind, length, reinterpret_cast<std::uintptr_t>(memory.get()) + offset, nullptr,
                     kind == Copy::Kind::zero ? nullptr : staging.data(), owner, true);
        CHECK(path.add(copy));
        return copy.status;
    };
    constexpr auto all = static_cast<std::uint32_t>(HalfAccessible::half);
    CHECK(run(Copy::Kind::write, 1, all - 1) == Status::ok);
    CHECK(memory.get()[0] == std::byte{0});
    CHECK(std::count(memory.get(), memory.get() + all, std::byte{7}) == all - 1);
    CHECK(run(Copy::Kind::zero, 100, 200'000) == Status::ok);
    CHECK(run(Copy::Kind::read, 0, all) == Status::ok);
    CHECK(std::equal(staging.begin(), staging.end(), memory.get()));
    CHECK(std::count(staging.begin(), staging.end(), std::byte{7}) == all - 1 - 200'000);
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
        CHECK(run(kind, all - 4096, 8192) == Status::io_error);
    }
    CHECK(reason_without_managed_path().empty());
}

TEST_CASE("gpu channel: the CPU copies revocable memory while the driver moves its pages") {
    ChannelRig rig(only(PathKind::copy_engine));
    const HalfAccessible memory;
    rig.address = reinterpret_cast<std::uintptr_t>(memory.get());
    rig.revocable = true;
    rig.read(4096);
    CHECK(rig.poll() == Steps{"engine 4096", "engine starts"});
    rig.state.revocable_access.set_by_cpu(true);
    rig.read(4096);
    CHECK(rig.poll() == Steps{"done 4096"});
    rig.revocable = false;
    rig.read(4096);
    CHECK(rig.poll() == Steps{"engine 4096", "engine starts"});
    rig.end_all();
}

TEST_CASE("gpu channel: copies of revocable memory that stall while the driver does not answer") {
    ChannelRig rig(only(PathKind::copy_engine));
    const HalfAccessible memory;
    rig.address = reinterpret_cast<std::uintptr_t>(memory.get());
    rig.state.revocable_access.query_begins(RevocableAccess::Clock::now() -
                                            std::chrono::minutes(1));
    const auto poll_for = [&](std::chrono::milliseconds time) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) rig.poll();
    };
    rig.read(4096);
    poll_for(RevocableAccess::stall + std::chrono::milliseconds(20));
    CHECK_FALSE(rig.state.revocable_access.by_cpu());
    rig.revocable = true;
    rig.read(4096);
    while (!rig.state.revocable_access.by_cpu()) rig.poll();
    rig.read(4096);
    CHECK(rig.poll() == Steps{"done 4096"});
    rig.end_all();
}

}  // namespace
}  // namespace gpunbd::storage::test
