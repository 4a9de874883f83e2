// Memory of a cache for other volumes on its device.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "storage/origins/origin_cache.hpp"
#include "storage/pages/volume.hpp"
#include "tests/checked.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t slab_page = 64 * mib;  // a slab has one
constexpr std::uint64_t lent_pages = 4;

class ConstantOrigin final : public Origin {
 public:
    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return lent_pages * slab_page; }
    std::optional<Extent> next_data(std::uint64_t offset) const override {
        if (offset >= size()) return std::nullopt;
        return Extent{offset, size()};
    }
    Error do_read(std::uint64_t, std::span<std::byte> to) override {
        std::memset(to.data(), 7, to.size());
        return {};
    }
    Error do_write(std::uint64_t, std::span<const std::byte>) override { return {}; }
    Error do_zero(std::uint64_t, std::uint64_t, bool) override { return {}; }
    bool can_zero() const override { return true; }
    Error do_flush() override { return {}; }
    bool may_have_lost_writes() const override { return false; }

 private:
    const std::string name_ = "constant";
};

struct Lending {
    // `is_slow`: pools allocate slabs ahead of need.
    explicit Lending(bool is_slow, OriginCache::Writes writes = OriginCache::Writes::none)
        : device(0, {.capacity = lent_pages * slab_page, .slow = is_slow}) {
        auto made = std::make_unique<OriginCache>(
            *cached, std::make_unique<ConstantOrigin>(),
            OriginCache::Options{.export_name = "cached",
                                 .reads_ahead = OriginCache::Ahead::nothing,
                                 .writes = writes});
        cached->set_source(std::move(made));
        for (std::uint64_t number = 0; number != lent_pages; ++number) read(number);
    }

    std::unique_ptr<Volume> make(std::uint64_t memory = 0) {
        return checked(Volume::create({.size = lent_pages * slab_page,
                                       .page_size = slab_page,
                                       .memory = memory,
                                       .may_exceed_memory = true},
                                      {&device}));
    }
    // To read ahead is a hint, which has no effect while no page can be dropped.
    void read(std::uint64_t number) {
        while (!cached->mapped(number)) {
            cached->cache()->prefetch(number * slab_page, 1);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    // What `plain` allocates ahead of need ends before.
    Status write(std::uint64_t number) {
        plain->resume();
        plain->quiesce();
        PageRef out;
        return plain->map(number, out);
    }

    MemoryDevice device;
    std::unique_ptr<Volume> cached = make(lent_pages * slab_page);
    std::unique_ptr<Volume> plain = make();
};

TEST_CASE("origin: an export that finds no memory gets that of a cache, except for one slab") {
    for (const bool is_slow : {false, true}) {
        CAPTURE(is_slow);
        Lending rig(is_slow);
        CHECK(rig.cached->mapped_bytes() == lent_pages * slab_page);
        for (std::uint64_t number = 0; number != lent_pages - 1; ++number) {
            CHECK(rig.write(number) == Status::ok);
            CHECK(rig.cached->mapped_bytes() == (lent_pages - 1 - number) * slab_page);
        }
        CHECK(rig.write(lent_pages - 1) == Status::no_space);
        // The cache goes on with what it has, and takes none back.
        for (std::uint64_t number = 0; number != lent_pages; ++number) rig.read(number);
        CHECK(rig.cached->mapped_bytes() == slab_page);
        CHECK(rig.plain->mapped_bytes() == (lent_pages - 1) * slab_page);
    }
}

TEST_CASE("origin: a volume may be as large as what is free and what caches can lend") {
    const Lending rig(false);
    const auto make = [&](std::uint64_t pages_of_it) {
        return Volume::create({.size = pages_of_it * slab_page, .page_size = slab_page},
                              {rig.plain->devices().front()});
    };
    CHECK(std::holds_alternative<CapacityError>(make(lent_pages)));
    CHECK(std::holds_alternative<std::unique_ptr<Volume>>(make(lent_pages - 1)));
}

TEST_CASE("origin: pages that clients read, or that the origin does not have, are not lent") {
    Lending rig(false, OriginCache::Writes::back);
    PageRef read = rig.cached->find(0);
    const PageRef other = rig.cached->find(1);
    PageRequest request;
    std::vector<SourceRequest> writes(lent_pages);
    for (const std::uint64_t number : {2, 3}) {
        REQUIRE(rig.cached->cache()->begin_write(number, writes[number], request) == Status::ok);
    }
    CHECK(rig.write(0) == Status::no_space);
    CHECK(rig.cached->mapped_bytes() == lent_pages * slab_page);
    read.reset();
    CHECK(rig.write(0) == Status::ok);
    CHECK_FALSE(rig.cached->mapped(0));
    for (const std::uint64_t number : {2, 3}) {
        rig.cached->cache()->end_write(number * slab_page, 1, 1, writes[number]);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
