// Many threads on few pages. Run with the thread sanitizer, this also finds data races.
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/rig.hpp"
#include "tests/storage/test_pool.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint32_t threads = 4;

template <class Body>
void on_threads(Body body) {
    std::vector<std::thread> running;
    for (std::uint32_t i = 0; i != threads; ++i) running.emplace_back(body, i);
    for (std::thread& each : running) each.join();
}

// Some words of a page that other threads may write.
class Words {
 public:
    Words(const PageRef& page, std::uint64_t page_size) : base_(page.cpu()), size_(page_size) {}
    void fill(std::uint64_t value) const {
        for (const std::uint64_t at : {std::uint64_t{0}, size_ / 2, size_ - 8}) {
            word(at).store(value, std::memory_order_relaxed);
        }
    }
    // Checks that each word is zero or the value of the owner.
    bool only(std::uint64_t value) const {
        for (const std::uint64_t at : {std::uint64_t{0}, size_ / 2, size_ - 8}) {
            const std::uint64_t seen = word(at).load(std::memory_order_relaxed);
            if (seen != 0 && seen != value) return false;
        }
        return true;
    }

 private:
    std::atomic_ref<std::uint64_t> word(std::uint64_t at) const {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base_ + at));
    }
    std::byte* base_;
    std::uint64_t size_;
};

struct Case {
    const char* name;
    std::uint32_t volumes;  // on one device
    std::uint64_t page_size;
    std::uint32_t pages;     // of each volume
    std::uint64_t capacity;  // of the device, in pages
    Provision provision;
    bool slow;
    bool waits;  // for its pages with acquire(), as a worker does
    int rounds;  // of each thread

    bool has_room() const { return capacity >= std::uint64_t{volumes} * pages; }
};

void pin_and_reuse(const Case& row, bool discards) {
    MemoryDevice device(0, {.discards = discards, .slow = row.slow});
    std::vector<std::unique_ptr<Volume>> volumes;
    for (std::uint32_t i = 0; i != row.volumes; ++i) {
        volumes.push_back(checked(Volume::create({.size = row.pages * row.page_size,
                                                  .page_size = row.page_size,
                                                  .provision = row.provision},
                                                 {&device})));
    }
    device.set_capacity(row.capacity * row.page_size);
    std::atomic<std::uint32_t> wrong{0};
    std::atomic<std::uint32_t> refused{0};
    std::atomic<std::uint32_t> mapped{0};
    std::atomic<std::uint32_t> found{0};
    on_threads([&](std::uint32_t thread) {
        Random random(thread);
        TestWaiter waiter;
        // Pages that are pinned over many rounds, and their values.
        std::vector<std::pair<std::uint64_t, PageRef>> held;
        for (int round = 0; round != row.rounds; ++round) {
            const std::uint32_t which = random.below(row.volumes);
            const std::uint32_t page = random.below(row.pages);
            const std::uint64_t mine = (which + 1) << 8 | (page + 1);
            Volume& volume = *volumes[which];
            PageRef ref;
            switch (random.below(4)) {
                case 0:
                    if ((row.waits ? waiter.acquire(volume, page, ref) : volume.map(page, ref)) !=
                        Status::ok) {
                        ++refused;
                        break;
                    }
                    ++mapped;
                    if (!Words(ref, row.page_size).only(mine)) ++wrong;
                    Words(ref, row.page_size).fill(mine);
                    if (!Words(ref, row.page_size).only(mine)) ++wrong;
                    break;
                case 1:
                    volume.unmap(page);
                    break;
                default:
                    ref = volume.find(page);
                    if (ref.hole()) break;
                    ++found;
                    if (!Words(ref, row.page_size).only(mine)) ++wrong;
            }
            if (!ref.hole() && random.one_in(2)) held.emplace_back(mine, std::move(ref));
            for (const auto& [value, each] : held) {
                if (!Words(each, row.page_size).only(value)) ++wrong;
            }
            if (held.size() == row.pages) held.clear();
        }
    });
    CHECK(wrong == 0);
    CHECK(mapped != 0);
    CHECK(found != 0);
    if (row.has_room()) CHECK(refused == 0);
    device.set_capacity(1000 * row.page_size);
    for (const auto& volume : volumes) {
        for (std::uint32_t page = 0; page != row.pages; ++page) volume->unmap(page);
        CHECK(volume->mapped_bytes() == 0);
        CHECK(volume->retired_bytes() == 0);  // no pin was lost
    }
    // Threads that acquire() has started may still release slabs.
    if (row.provision == Provision::thin && !row.waits) CHECK(device.slabs() <= row.volumes);
    for (const auto& volume : volumes) {
        for (std::uint32_t page = 0; page != row.pages; ++page) {
            CHECK(Words(map_page(*volume, page), row.page_size).only(0));
        }
        if (!row.waits) CHECK(volume->allocated_bytes() == row.pages * row.page_size);
    }
    volumes.clear();
    CHECK(device.used() == 0);
}

// Some threads keep pages pinned for a long time, others trim and write.
TEST_CASE("threads: a pinned page is not reused, and causes no ENOSPC for writers") {
    constexpr auto thin = Provision::thin;
    constexpr auto full = Provision::full;
    constexpr Case cases[] = {
        {"one slab each", 2, 64 * kib, 4, 1000, thin, false, false, 5000},
        {"slabs come and go", 2, 64 * mib, 4, 1000, thin, false, false, 2000},
        {"the device is full now and then", 2, 64 * mib, 4, 5, thin, false, false, 2000},
        {"no spare page", 1, 64 * kib, 24, 24, thin, false, false, 20000},
        {"no spare page, full", 1, 64 * kib, 24, 24, full, false, false, 20000},
        {"no spare slab", 1, 64 * mib, 5, 5, thin, false, true, 1500},
        {"no spare slab, with a provisioner", 1, 64 * mib, 5, 5, thin, true, true, 1500},
    };
    for (const Case& row : cases) {
        for (const bool discards : {true, false}) {
            CAPTURE(row.name);
            CAPTURE(discards);
            pin_and_reuse(row, discards);
        }
    }
}

// A device that is sometimes full, and whose freed pages have to be cleared.
TEST_CASE("threads: pages are mapped and unmapped concurrently with a provisioner") {
    constexpr std::uint64_t page_size = 64 * kib;
    constexpr std::uint32_t pages = 3 * 1024;
    MemoryDevice device(
        0, {.capacity = 2 * 1024 * page_size + 100 * page_size, .discards = false, .slow = true});
    std::atomic<std::uint32_t> wrong{0};
    {
        TestPool pool(device, page_size, pages, Provision::thin);
        on_threads([&](std::uint32_t thread) {
            Random random(thread);
            std::vector<PageIndex> mine;
            for (int step = 0; step != 20000; ++step) {
                const bool grow = step / 2500 % 2 == 0;
                if (mine.empty() || random.below(10) < (grow ? 8U : 2U)) {
                    PageIndex page = 0;
                    const Status status = pool.take(page);
                    if (status == Status::no_space) continue;
                    if (status != Status::ok) ++wrong;
                    std::byte* const at = pool.memory().slabs().cpu_of(page);
                    if (*at != std::byte{0} || at[page_size - 1] != std::byte{0}) ++wrong;
                    *at = at[page_size - 1] = std::byte{1};
                    mine.push_back(page);
                } else {
                    std::swap(mine[random.below(static_cast<std::uint32_t>(mine.size()))],
                              mine.back());
                    retire(pool, mine.back());
                    mine.pop_back();
                }
            }
            for (const PageIndex page : mine) retire(pool, page);
        });
        CHECK(wrong == 0);
        // No page is lost or used twice.
        std::set<PageIndex> all;
        PageIndex page = 0;
        while (pool.take(page) == Status::ok) REQUIRE(all.insert(page).second);
        CHECK(all.size() == device.used() / page_size);
        CHECK(all.size() >= 2 * 1024);
        for (const PageIndex each : all) retire(pool, each);
    }
    CHECK(device.used() == 0);
}

// Workers with their own channels, on different ranges of the same pages.
TEST_CASE("threads: workers write, read and zero concurrently within the same pages") {
    for (const std::string_view devices : {"h", "s", "sh"}) {
        CAPTURE(devices);
        constexpr std::uint32_t piece = 20000;
        RigOptions options{.devices = devices, .page_size = 64 * kib};
        options.stripe_size = devices.size() == 1 ? 0 : options.page_size;
        options.size = std::uint64_t{8} * threads * piece + 1;
        options.channels = {.chunk_size = 64 * kib, .slots = 2, .pinned = 64 * kib};
        Rig rig(options);
        std::vector<std::unique_ptr<Channels>> channels;
        for (std::uint32_t i = 0; i != threads; ++i) channels.push_back(rig.open_channels());
        std::atomic<std::uint32_t> wrong{0};
        on_threads([&](std::uint32_t thread) {
            SilentOwner owner;
            Random random(thread);
            Channels& mine = *channels[thread];
            ClientAccount account;
            std::vector<std::byte> expected(piece);
            std::vector<std::byte> payload(piece);
            for (std::uint32_t round = 0; round != 150; ++round) {
                const std::uint64_t at = std::uint64_t{round % 8 * threads + thread} * piece;
                const auto fill = static_cast<std::byte>(thread * 50 + random.below(50) + 1);
                std::fill(payload.begin(), payload.end(), fill);
                const std::uint32_t skip = random.below(piece - 1);
                const std::uint32_t length = 1 + random.below(piece - skip);

                WriteTransfer write;
                write.begin({*rig.volume, mine, account}, owner, {at, piece});
                for (std::size_t sent = 0; !write.done();) {
                    sent += write.fill(std::span(payload).subspan(sent));
                    mine.poll();
                }
                if (write.status() != Status::ok) ++wrong;
                expected = payload;

                ZeroTransfer zero;
                zero.begin({*rig.volume, mine, account}, owner, {at + skip, length}, {});
                while (!zero.done()) mine.poll();
                if (zero.status() != Status::ok) ++wrong;
                std::fill_n(expected.begin() + skip, length, std::byte{0});

                ReadTransfer read;
                read.begin({*rig.volume, mine, account}, owner, {at, piece});
                while (!read.all_taken()) {
                    for (ReadTransfer::Piece got; read.next(got); read.give_back()) {
                        for (std::uint32_t i = 0; i != got.length; ++i) {
                            const std::byte seen = got.data == nullptr ? std::byte{0} : got.data[i];
                            if (seen != expected[got.offset - at + i]) ++wrong;
                        }
                    }
                    mine.poll();
                }
                if (read.status() != Status::ok) ++wrong;
            }
        });
        CHECK(wrong == 0);
        for (const auto& each : channels) rig.check_idle(*each);
        rig.check_pages();
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
