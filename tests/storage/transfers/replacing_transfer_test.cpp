// Writes of whole pages that are shared with another volume.
#include "tests/storage/family.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr auto page_size = static_cast<std::uint32_t>(128 * kib);
constexpr auto chunk = static_cast<std::uint32_t>(32 * kib);
constexpr std::uint32_t pages = 4;

RigOptions options_of(const char* devices) {
    return {.devices = devices,
            .size = pages * page_size,
            .page_size = page_size,
            .channels = {.chunk_size = chunk, .slots = 2, .pinned = 4 * chunk}};
}

// A write of `value` to pages of a volume that shares their old contents with a clone.
class Write final : private TransferOwner {
 public:
    Write(Rig& rig, std::uint64_t first, std::uint32_t count, std::byte value)
        : rig_(rig), payload_(std::size_t{count} * page_size, value) {
        transfer.begin({*rig.volume, *rig.channels, account_}, *this,
                       {first * page_size, payload_.size()});
        settle(*rig.channels);
    }
    // Until so many bytes of the payload have arrived.
    void fill(std::size_t bytes) {
        while (sent_ != bytes) {
            const std::size_t more =
                transfer.fill(std::span(payload_).subspan(sent_, bytes - sent_));
            settle(*rig_.channels);
            sent_ += more;
        }
    }
    void fill_all() { fill(payload_.size()); }

    WriteTransfer transfer;

 private:
    void transfer_moved(Transfer&) override {}

    Rig& rig_;
    std::vector<std::byte> payload_;
    ClientAccount account_;
    std::size_t sent_ = 0;
};

bool has(const Rig& rig, std::uint64_t page, std::byte value) {
    const PageRef found = rig.volume->find(page);
    if (found.hole()) return false;
    const auto* const at = reinterpret_cast<const std::byte*>(found.address());
    return std::count(at, at + page_size, value) == page_size;
}

constexpr std::byte old_value{1};
constexpr std::byte new_value{2};

struct Shared {
    Rig rig;
    Family family{rig};
    std::uint64_t copies = 0;  // so far, of pages on a device in place

    explicit Shared(const char* devices) : rig(options_of(devices)) {
        Write all(rig, 0, pages, old_value);
        all.fill_all();
        REQUIRE(all.transfer.status() == Status::ok);
        REQUIRE(family.clone().empty());
        // The first page of a new slab may be a copy.
        map_page(*rig.volume, 0);
        copies = rig.memories[0]->copies;
    }
    // The clone has the old contents, and no page is lost.
    void check() {
        family.use(0);
        for (std::uint64_t page = 0; page != pages; ++page) CHECK(has(rig, page, old_value));
        family.use(0);
        CHECK(rig.volume->retired_bytes() == 0);
        family.remove(0);
        CHECK(rig.volume->contents().shared == 0);
        rig.check_settled();
        rig.check_pages();
    }
};

TEST_CASE("replacing: whole pages are not copied, and are found when they are complete") {
    for (const char* const devices : {"h", "s"}) {
        CAPTURE(devices);
        Shared shared(devices);
        Rig& rig = shared.rig;
        Write write(rig, 1, 2, new_value);
        write.fill(page_size - 1);
        CHECK(has(rig, 1, old_value));
        write.fill(page_size + 1);
        CHECK(has(rig, 1, new_value));
        CHECK(has(rig, 2, old_value));
        write.fill_all();
        CHECK(write.transfer.done());
        CHECK(write.transfer.status() == Status::ok);
        CHECK(has(rig, 2, new_value));
        CHECK(rig.memories[0]->copies == shared.copies);
        shared.check();
    }
}

TEST_CASE("replacing: a write that does not end leaves the old contents") {
    for (const char* const devices : {"h", "s"}) {
        for (const bool is_abandoned : {false, true}) {
            for (const std::uint32_t filled :
                 {0U, 1U, chunk, chunk + 1, page_size - 1, page_size, page_size + 1}) {
                CAPTURE(devices);
                CAPTURE(is_abandoned);
                CAPTURE(filled);
                Shared shared(devices);
                Rig& rig = shared.rig;
                Write write(rig, 1, 2, new_value);
                write.fill(filled);
                is_abandoned ? write.transfer.abandon() : write.transfer.end_here();
                settle(*rig.channels);
                CHECK(write.transfer.done());
                CHECK(write.transfer.status() == Status::io_error);
                CHECK(has(rig, 1, filled < page_size ? old_value : new_value));
                CHECK(has(rig, 2, old_value));
                shared.check();
            }
        }
    }
}

// A clone has the contents of one instant, so no page is replaced while it is made.
TEST_CASE("replacing: a page waits until a clone is made") {
    for (const char* const devices : {"h", "s"}) {
        for (const bool is_abandoned : {false, true}) {
            CAPTURE(devices);
            CAPTURE(is_abandoned);
            Shared shared(devices);
            Rig& rig = shared.rig;
            Write write(rig, 1, 1, new_value);
            write.fill(page_size - 1);
            rig.volume->pool(0).freeze();
            const auto poll = [&] {
                for (int i = 0; i != 10; ++i) rig.channels->poll();
            };
            const std::byte last = new_value;
            REQUIRE(write.transfer.fill({&last, 1}) == 1);
            poll();
            CHECK(write.transfer.all_filled());
            CHECK_FALSE(write.transfer.done());
            CHECK(has(rig, 1, old_value));
            if (is_abandoned) write.transfer.abandon();
            rig.volume->pool(0).thaw();
            settle(*rig.channels);
            CHECK(write.transfer.done());
            CHECK(has(rig, 1, is_abandoned ? old_value : new_value));
            shared.check();
        }
    }
}

// Whatever has become of the page meanwhile, the write that ends last counts.
TEST_CASE("replacing: other requests change the page meanwhile") {
    enum class Other { write, whole_write, trim, clone };
    for (const char* const devices : {"h", "s"}) {
        for (const Other other : {Other::write, Other::whole_write, Other::trim, Other::clone}) {
            CAPTURE(devices);
            CAPTURE(static_cast<int>(other));
            Shared shared(devices);
            Rig& rig = shared.rig;
            Write write(rig, 1, 1, new_value);
            write.fill(page_size / 2);
            if (other == Other::write) {
                PageRef page = map_page(*rig.volume, 1);
                *reinterpret_cast<std::byte*>(page.address()) = std::byte{7};
            } else if (other == Other::whole_write) {
                Write whole(rig, 1, 1, std::byte{7});
                whole.fill_all();
                REQUIRE(whole.transfer.done());
                CHECK(has(rig, 1, std::byte{7}));
            } else if (other == Other::trim) {
                rig.volume->unmap(1);
            } else {
                REQUIRE(shared.family.clone().empty());
            }
            write.fill_all();
            CHECK(write.transfer.done());
            CHECK(write.transfer.status() == Status::ok);
            CHECK(has(rig, 1, new_value));
            if (other == Other::clone) {
                shared.family.use(1);
                CHECK(has(rig, 1, old_value));
                shared.family.use(1);
                shared.family.remove(1);
            }
            shared.check();
        }
    }
}

// A write up to the end of the volume does not fill the last page.
TEST_CASE("replacing: a volume that grows has zeroes after its former end") {
    constexpr std::uint32_t half = page_size / 2;
    RigOptions options = options_of("h");
    options.size = page_size + half;
    options.discards = false;
    Rig rig(options);
    PagePool& pool = rig.volume->pool(0);
    PageIndex used[2] = {};
    for (PageIndex& page : used) {
        REQUIRE(pool.memory().take(page, PageAllocator::Purpose::zeroes) == Status::ok);
        std::memset(pool.memory().slabs().cpu_of(page), 0xff, page_size);
    }
    for (const PageIndex page : used) pool.memory().put_back(page);
    Family family(rig);
    const auto write_end = [&] {
        REQUIRE(Requests{rig, Random(1)}.write(page_size, half) == Status::ok);
    };
    write_end();
    REQUIRE(family.clone().empty());
    write_end();
    REQUIRE(rig.volume->resize(2 * page_size).empty());
    const PageRef last = rig.volume->find(1);
    const auto* const at = reinterpret_cast<const std::byte*>(last.address());
    CHECK(std::count(at + half, at + page_size, std::byte{}) == half);
}

// With a page for each write, none of them finds too little memory.
TEST_CASE("replacing: concurrent writes of one page find memory") {
    Shared shared("h");
    Rig& rig = shared.rig;
    Write first(rig, 1, 3, new_value);
    first.fill(page_size / 2);
    for (std::uint64_t page = 1; page != pages; ++page) {
        PageRef copied;
        CHECK(rig.volume->map(page, copied) == Status::ok);
    }
    first.fill_all();
    CHECK(first.transfer.status() == Status::ok);
    for (std::uint64_t page = 1; page != pages; ++page) CHECK(has(rig, page, new_value));
    shared.check();
}

}  // namespace
}  // namespace gpunbd::storage::test
