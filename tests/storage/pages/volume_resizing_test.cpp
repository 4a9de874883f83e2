// Volumes that grow and shrink.
#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t resized_page = 64 * kib;

struct Resized {
    explicit Resized(std::uint64_t pages, Provision provision = Provision::thin,
                     std::uint64_t stripe = 0) {
        volume = checked(Volume::create({.size = pages * resized_page,
                                         .page_size = resized_page,
                                         .stripe_size = stripe * resized_page,
                                         .provision = provision},
                                        {&one, &other}));
    }

    void put(std::uint64_t page, std::uint64_t value) { write_word(*volume, page, value); }
    std::uint64_t get(std::uint64_t page) const { return read_word(*volume, page); }
    std::string resize(std::uint64_t pages) { return volume->resize(pages * resized_page); }

    MemoryDevice one{0, {}};
    MemoryDevice other{1, {}};
    std::unique_ptr<Volume> volume;
};

TEST_CASE("resize: every page can be written after growing, and keeps its contents") {
    for (const std::uint64_t stripe : {0, 2}) {
        CAPTURE(stripe);
        Resized rig(6, Provision::thin, stripe);
        for (std::uint64_t page = 0; page != 6; ++page) rig.put(page, page + 1);
        CHECK(rig.resize(100) == "");
        CHECK(rig.volume->size() == 100 * resized_page);
        CHECK(rig.get(99) == 0);
        for (std::uint64_t page = 6; page != 100; ++page) rig.put(page, page + 1);
        for (std::uint64_t page = 0; page != 100; ++page) CHECK(rig.get(page) == page + 1);
    }
}

TEST_CASE("resize: what is beyond a smaller size is gone, also what is written there meanwhile") {
    Resized rig(8);
    for (std::uint64_t page = 0; page != 8; ++page) rig.put(page, page + 1);
    CHECK_FALSE(rig.volume->is_hole_from(4 * resized_page));
    CHECK(rig.resize(4) == "");
    CHECK(rig.volume->mapped_bytes() == 4 * resized_page);
    rig.put(6, 77);  // a write that began before
    CHECK(rig.resize(8) == "");
    CHECK(rig.volume->is_hole_from(4 * resized_page));
    CHECK(rig.get(3) == 4);
    CHECK(rig.get(6) == 0);
    CHECK(rig.volume->resize(4 * resized_page - 512) ==
          "a smaller size has to be a multiple of the page size of 65536 bytes");
}

TEST_CASE("resize: the contents can be counted meanwhile") {
    constexpr std::uint64_t pages = 1 << 16;
    Resized rig(pages);
    rig.put(0, 1);
    std::atomic<bool> over{false};
    std::thread counting([&] {
        while (!over) {
            CHECK(rig.volume->contents().own == resized_page);
            CHECK(rig.volume->mapped_bytes() == resized_page);
        }
    });
    for (int i = 0; i != 300; ++i) {
        CHECK(rig.resize(1 + i % 7) == "");
        CHECK(rig.resize(pages) == "");
    }
    over = true;
    counting.join();
}

TEST_CASE("resize: a full volume has all its memory, and no more") {
    Resized rig(4, Provision::full);
    CHECK(rig.resize(64) == "");
    CHECK(rig.volume->allocated_bytes() >= 64 * resized_page);
    CHECK(rig.resize(4) == "");
    CHECK(rig.volume->allocated_bytes() < 64 * resized_page);
    for (std::uint64_t page = 0; page != 4; ++page) rig.put(page, 1);
}

TEST_CASE("resize: volumes that share pages have sizes of their own") {
    Resized rig(6);
    for (std::uint64_t page = 0; page != 6; ++page) rig.put(page, page + 1);
    auto clone = checked(rig.volume->clone("clone"));
    CHECK(rig.resize(2) == "");
    CHECK(rig.volume->mapped_bytes() == 2 * resized_page);
    CHECK(rig.resize(40) == "");
    for (std::uint64_t page = 0; page != 40; ++page) rig.put(page, page + 100);
    CHECK(clone->resize(3 * resized_page) == "");
    CHECK(clone->resize(60 * resized_page) == "");
    std::swap(rig.volume, clone);
    for (std::uint64_t page = 0; page != 6; ++page)
        CHECK(rig.get(page) == (page < 3 ? page + 1 : 0));
    for (std::uint64_t page = 0; page != 60; ++page) rig.put(page, page + 200);
    std::swap(rig.volume, clone);
    for (std::uint64_t page = 0; page != 40; ++page) CHECK(rig.get(page) == page + 100);
    // Later clones have the new size.
    auto second = checked(rig.volume->clone("second"));
    std::swap(rig.volume, second);
    CHECK(rig.volume->size() == 40 * resized_page);
    for (std::uint64_t page = 0; page != 40; ++page) {
        CHECK(rig.get(page) == page + 100);
        rig.put(page, page + 300);
    }
    std::swap(rig.volume, second);
    CHECK(rig.get(39) == 139);
}

}  // namespace
}  // namespace gpunbd::storage::test
