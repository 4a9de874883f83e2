#include "storage/devices/gpu/eviction_watch.hpp"

#include <new>

#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t piece = EvictionWatch::piece;
constexpr EvictionWatch::Marks marks{
    .low = 500 * mib, .high = 1000 * mib, .host_reserve = 1000 * mib};

using Fetched = std::vector<std::uint64_t>;  // addresses, in MiB

// A device with two slabs of two pieces each, at the addresses 1 and 2 GiB.
class WatchRig {
 public:
    WatchRig()
        : watch("fake:0", slabs, access, marks,
                {.free_memory =
                     [this] {
                         if (while_asked) while_asked();
                         return free;
                     },
                 .host_memory =
                     [this] {
                         if (host_is_unknown) throw std::bad_alloc();
                         return host;
                     },
                 .fetch =
                     [this](MemoryRange range) {
                         CHECK_FALSE(access.by_cpu());  // it would bring pages to the host again
                         fetched_.push_back(range.address / mib);
                         CHECK(range.bytes == piece);
                         now += fetch_takes;
                         return fetches_work;
                     },
                 .now = [this] { return now; }}) {
        for (const std::uint64_t address : {1 * gib, 2 * gib}) {
            slabs.add({.address = address, .bytes = 2 * piece});
        }
    }
    ~WatchRig() { watch.stop(); }

    // Runs the watch for a time, and returns what was fetched.
    Fetched run(EvictionWatch::Clock::duration duration) {
        for (const auto end = now + duration; now < end;) now += watch.step();
        return std::exchange(fetched_, {});
    }
    Fetched step() {
        watch.step();
        return std::exchange(fetched_, {});
    }
    void evict() {
        free = 0;
        step();
    }

    std::uint64_t free = 20 * gib;
    std::uint64_t host = 20 * gib;
    bool host_is_unknown = false;
    bool fetches_work = true;
    EvictionWatch::Clock::duration fetch_takes{1ms};
    EvictionWatch::Clock::time_point now{1h};
    std::function<void()> while_asked;
    RevocableSlabs slabs;
    RevocableAccess access;
    EvictionWatch watch;

 private:
    Fetched fetched_;
};

const Fetched all_return{1024, 1056, 2048, 2080};

TEST_CASE("eviction watch: does nothing while the free memory is not low") {
    WatchRig rig;
    CHECK(rig.run(10s).empty());
    rig.free = marks.low;
    CHECK(rig.run(10s).empty());
    CHECK_FALSE(rig.watch.evicting());
    CHECK_FALSE(rig.access.by_cpu());
    CHECK(rig.watch.evictions() == 0);
}

TEST_CASE("eviction watch: the CPU accesses all slabs until memory has been free for a while") {
    WatchRig rig;
    rig.free = marks.low - 1;
    CHECK(rig.step().empty());
    CHECK(rig.watch.evicting());
    CHECK(rig.access.by_cpu());
    CHECK(rig.slabs.yielded() == rig.slabs.bytes());
    rig.free = marks.high - 1;
    CHECK(rig.run(10s).empty());
    CHECK(rig.access.by_cpu());

    rig.free = marks.high;
    CHECK(rig.run(EvictionWatch::patience).empty());
    CHECK(rig.access.by_cpu());
    CHECK(rig.run(1s) == all_return);
    CHECK_FALSE(rig.watch.evicting());
    CHECK_FALSE(rig.access.by_cpu());
    CHECK(rig.slabs.yielded() == 0);
    CHECK(rig.watch.evictions() == 1);

    rig.evict();
    CHECK(rig.access.by_cpu());
    CHECK(rig.watch.evictions() == 2);
}

TEST_CASE("eviction watch: memory has to be free for the whole time") {
    WatchRig rig;
    rig.evict();
    for (int i = 0; i != 3; ++i) {
        rig.free = 20 * gib;
        CHECK(rig.run(EvictionWatch::patience - 10ms).empty());
        rig.free = marks.high - 1;
        CHECK(rig.run(10ms).empty());
    }
    CHECK(rig.access.by_cpu());
    CHECK(rig.watch.evictions() == 1);
}

TEST_CASE("eviction watch: returning pages leave half of the link to clients") {
    WatchRig rig;
    rig.evict();
    rig.free = 20 * gib;
    rig.fetch_takes = 3ms;
    rig.run(EvictionWatch::patience);
    const auto begin = rig.now;
    CHECK(rig.watch.step() == 3ms);
    CHECK(rig.now == begin + 3ms);
}

TEST_CASE("eviction watch: returning ends before it makes the free memory low") {
    WatchRig rig;
    rig.evict();
    rig.free = marks.high;
    rig.run(EvictionWatch::patience);
    CHECK(rig.step() == Fetched{1024});
    rig.free = (marks.low + marks.high) / 2;  // pages have taken it
    CHECK(rig.step() == Fetched{1056});
    CHECK(rig.step() == Fetched{2048});
    CHECK(rig.slabs.yielded() == 2 * piece);
    --rig.free;
    // The slab on its way and the one that has returned may be taken as well: memory is scarce.
    CHECK(rig.run(10ms).empty());
    CHECK(rig.access.by_cpu());
    CHECK(rig.slabs.yielded() == rig.slabs.bytes());
    CHECK(rig.watch.evictions() == 1);
    rig.free = marks.high;
    CHECK(rig.run(EvictionWatch::patience + 1s) == all_return);
}

TEST_CASE("eviction watch: a failed return is tried again later") {
    WatchRig rig;
    rig.evict();
    rig.free = 20 * gib;
    rig.fetches_work = false;
    CHECK(rig.run(EvictionWatch::patience + 5ms) == Fetched{1024});
    CHECK(rig.watch.evicting());
    CHECK(rig.access.by_cpu());
    rig.fetches_work = true;
    CHECK(rig.run(EvictionWatch::patience + 1s) == all_return);
}

TEST_CASE("eviction watch: a stalled copy counts only while the driver does not answer") {
    WatchRig rig;
    rig.access.copy_stalls(rig.now);
    CHECK_FALSE(rig.access.by_cpu());
    rig.while_asked = [&] {
        rig.access.copy_stalls(rig.now + RevocableAccess::stall - 1ms);
        CHECK_FALSE(rig.access.by_cpu());
        rig.access.copy_stalls(rig.now + RevocableAccess::stall);
        CHECK(rig.access.by_cpu());
    };
    rig.step();  // the answer is that nothing was taken
    CHECK_FALSE(rig.access.by_cpu());
    rig.evict();
    CHECK(rig.access.by_cpu());
}

TEST_CASE("eviction watch: an eviction ends when no slab is left") {
    WatchRig rig;
    rig.free = 0;
    rig.run(10ms);
    rig.slabs.remove(1 * gib);
    rig.slabs.remove(2 * gib);
    CHECK(rig.step().empty());
    CHECK_FALSE(rig.watch.evicting());
    CHECK_FALSE(rig.access.by_cpu());
}

TEST_CASE("eviction watch: a slab on its way back can be removed after the watch has stopped") {
    WatchRig rig;
    rig.free = 0;
    rig.run(10ms);
    rig.free = 20 * gib;
    rig.run(EvictionWatch::patience);
    CHECK(rig.step() == Fetched{1024});
    rig.watch.stop();
    rig.slabs.remove(1 * gib);  // would wait forever for a claimed slab
    CHECK(rig.slabs.bytes() == 2 * piece);
}

TEST_CASE("eviction watch: the host is short if it cannot take all revocable memory") {
    WatchRig rig;
    const std::uint64_t needed = marks.host_reserve + rig.slabs.bytes();
    rig.host = needed;
    rig.run(1s);
    CHECK(rig.watch.excess() == 0);
    rig.host = needed - 1;
    rig.run(1s);
    // A margin prevents frequent changes.
    CHECK(rig.watch.excess() == 1 + marks.host_reserve / 2);
    rig.host = needed + marks.host_reserve / 2 - 1;
    rig.run(1s);
    CHECK(rig.watch.excess() == 1);
    ++rig.host;
    rig.host_is_unknown = true;
    rig.run(1s);
    CHECK(rig.watch.excess() == 1);
    rig.host_is_unknown = false;
    rig.run(1s);
    CHECK(rig.watch.excess() == 0);
    // During an eviction, the host holds a part already.
    rig.free = 0;
    rig.run(1s);
    rig.host = marks.host_reserve;
    rig.run(1s);
    CHECK(rig.watch.excess() == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
