// Volumes that grow and shrink.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t resized_page = 64 * kib;

struct Resized {
    explicit Resized(std::uint64_t pages, Provision provision = Provision::thin,
                     std::uint64_t stripe = 0) {
        auto made = Volume::create({.size = pages * resized_page,
                                    .page_size = resized_page,
                                    .stripe_size = stripe * resized_page,
                                    .provision = provision},
                                   {&one, &other});
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
        volume = std::get<std::unique_ptr<Volume>>(std::move(made));
    }

    void put(std::uint64_t page, std::uint64_t value) {
        PageRef ref;
        REQUIRE(volume->map(page, ref) == Status::ok);
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(ref.address())) = value;
    }
    std::uint64_t get(std::uint64_t page) {
        const PageRef ref = volume->find(page);
        return ref.hole()
                   ? 0
                   : std::atomic_ref(*reinterpret_cast<std::uint64_t*>(ref.address())).load();
    }
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
    auto made = rig.volume->clone("clone");
    auto& clone = std::get<std::unique_ptr<Volume>>(made);
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
}

TEST_CASE("resize: clones have the new size") {
    Resized rig(4);
    rig.put(1, 11);
    CHECK(rig.resize(40) == "");
    rig.put(39, 49);
    auto second = rig.volume->clone("second");
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(second));
    std::swap(rig.volume, std::get<std::unique_ptr<Volume>>(second));
    CHECK(rig.volume->size() == 40 * resized_page);
    CHECK(rig.get(1) == 11);
    for (std::uint64_t page = 0; page != 40; ++page) rig.put(page, page + 100);
    std::swap(rig.volume, std::get<std::unique_ptr<Volume>>(second));
    CHECK(rig.get(39) == 49);
}

}  // namespace
}  // namespace gpunbd::storage::test
