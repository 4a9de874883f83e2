#include "storage/pages/volume.hpp"

#include <list>

#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

struct Devices {
    std::vector<std::unique_ptr<MemoryDevice>> own;
    std::vector<Device*> all;

    Devices(std::vector<std::uint64_t> capacities, bool discards) {
        for (const std::uint64_t capacity : capacities) {
            own.push_back(std::make_unique<MemoryDevice>(
                static_cast<std::uint32_t>(own.size()),
                MemoryDevice::Options{.capacity = capacity, .discards = discards}));
            all.push_back(own.back().get());
        }
    }
    std::uint64_t used() const {
        std::uint64_t bytes = 0;
        for (const auto& device : own) bytes += device->used();
        return bytes;
    }
};

struct Shape {
    const char* name;
    std::uint64_t page_size;
    std::uint64_t size;
    std::uint64_t stripe_size;
    std::vector<std::uint64_t> capacities;
};

const Shape shapes[] = {
    {"a byte", 64 * kib, 1, 0, {64 * kib}},
    {"64K pages and a tail", 64 * kib, 20 * 64 * kib + 1, 0, {4 * mib}},
    {"2M pages and a tail", 2 * mib, 40 * 2 * mib - 1, 0, {80 * mib}},
    {"2M, linear over two", 2 * mib, 50 * 2 * mib, 0, {34 * mib, 66 * mib}},
    {"64K, linear over three, with shares that are no slab",
     64 * kib,
     30 * 64 * kib + 5,
     0,
     {5 * 64 * kib + 3, 64 * kib - 1, 27 * 64 * kib}},
    {"64K, striped over three", 64 * kib, 31 * 64 * kib - 7, 64 * kib, {mib, mib, mib}},
    {"2M, striped over two by 4M", 2 * mib, 37 * 2 * mib, 4 * mib, {40 * mib, 36 * mib}},
    {"64K, a slab and some pages", 64 * kib, 1030 * 64 * kib, 0, {gib}},
    {"2M, several slabs", 2 * mib, 100 * 2 * mib, 0, {gib}},
    {"a page is a slab", 64 * mib, 6 * 64 * mib, 64 * mib, {256 * mib, 256 * mib}},
    {"a page is larger than a slab", 128 * mib, 3 * 128 * mib, 0, {gib}},
};

std::uint32_t expected_device(const Shape& shape, std::uint64_t page) {
    if (shape.stripe_size != 0) {
        return static_cast<std::uint32_t>(page / (shape.stripe_size / shape.page_size) %
                                          shape.capacities.size());
    }
    std::uint32_t device = 0;
    while (page >= shape.capacities[device] / shape.page_size) {
        page -= shape.capacities[device++] / shape.page_size;
    }
    return device;
}

struct Held {
    PageRef page;
    std::uint64_t stamp;
};

// Of the slabs that have a page that is mapped or held.
std::uint64_t bytes_in_use(const Volume& volume,
                           const std::map<std::uint64_t, std::uint64_t>& model,
                           const std::list<Held>& held) {
    std::map<const std::byte*, std::uint64_t> slabs;
    const auto add = [&](const Slab& slab) { slabs[slab.cpu] = slab.bytes; };
    for (const auto& [page, unused] : model) add(volume.find(page).slab());
    for (const Held& each : held) add(each.page.slab());
    std::uint64_t bytes = 0;
    for (const auto& [unused, size] : slabs) bytes += size;
    return bytes;
}

TEST_CASE("volume: map, unmap, find and pins against a simple model") {
    for (const Shape& shape : shapes) {
        for (const Provision provision : {Provision::thin, Provision::full}) {
            for (const bool discards : {true, false}) {
                CAPTURE(shape.name);
                CAPTURE(discards);
                const std::uint64_t page_size = shape.page_size;
                Devices devices(shape.capacities, discards);
                auto volume = checked(Volume::create({.size = shape.size,
                                                      .page_size = page_size,
                                                      .stripe_size = shape.stripe_size,
                                                      .provision = provision},
                                                     devices.all));
                const auto pages = static_cast<std::uint32_t>((shape.size - 1) / page_size + 1);
                const bool full = provision == Provision::full;
                CHECK(volume->allocated_bytes() == (full ? pages * page_size : 0));
                std::map<std::uint64_t, std::uint64_t> model;  // the stamps of mapped pages
                std::list<Held> held;
                Random random(pages);
                std::uint64_t next_stamp = 1;
                std::uint32_t bias = 4;  // maps out of 7 changes
                for (int step = 0; step != 3000; ++step) {
                    if (step % 300 == 0) bias = random.between(1, 6);
                    const std::uint64_t page = random.below(pages);
                    const auto known = model.find(page);
                    switch (random.below(6)) {
                        case 0:
                        case 1:
                        case 2: {
                            if (random.below(7) >= bias) {
                                // Most of them are mapped, so that slabs become empty.
                                const auto mapped = model.lower_bound(page);
                                const bool any = mapped == model.end() || random.one_in(4);
                                const std::uint64_t unmapped = any ? page : mapped->first;
                                volume->unmap(unmapped);
                                model.erase(unmapped);
                                break;
                            }
                            PageRef ref = map_page(*volume, page);
                            REQUIRE(&ref.device() == devices.all[expected_device(shape, page)]);
                            REQUIRE(holds(ref.cpu(), page_size,
                                          known == model.end() ? 0 : known->second));
                            stamp(ref.cpu(), page_size, next_stamp);
                            // All references to this page see the write.
                            for (Held& other : held) {
                                if (other.page.address() == ref.address()) {
                                    other.stamp = next_stamp;
                                }
                            }
                            model[page] = next_stamp++;
                            break;
                        }
                        case 3: {
                            PageRef ref = volume->find(page);
                            REQUIRE(ref.hole() == (known == model.end()));
                            if (ref.hole()) break;
                            REQUIRE(holds(ref.cpu(), page_size, known->second));
                            if (held.size() < pages / 2) {
                                held.push_back({std::move(ref), known->second});
                            }
                            break;
                        }
                        case 4:
                            if (!held.empty()) {
                                const auto at = std::next(
                                    held.begin(),
                                    random.below(static_cast<std::uint32_t>(held.size())));
                                REQUIRE(holds(at->page.cpu(), page_size, at->stamp));
                                held.erase(at);
                            }
                            break;
                        default:
                            REQUIRE(volume->mapped(page) == (known != model.end()));
                            REQUIRE(volume->mapped_bytes() == model.size() * page_size);
                            const std::uint64_t allocated = volume->allocated_bytes();
                            REQUIRE(allocated == devices.used());
                            if (full) {
                                REQUIRE(allocated == pages * page_size);
                                break;
                            }
                            // All slabs but one of each device are released.
                            const std::uint64_t used = bytes_in_use(*volume, model, held);
                            const std::uint64_t slab = std::max(64 * mib, page_size);
                            REQUIRE(allocated >= used);
                            REQUIRE(allocated - used <= devices.all.size() * slab);
                            REQUIRE(allocated <= pages * page_size);
                    }
                }
                for (const Held& each : held)
                    REQUIRE(holds(each.page.cpu(), page_size, each.stamp));
                held.clear();
                for (std::uint64_t page = 0; page != pages; ++page) volume->unmap(page);
                CHECK(volume->mapped_bytes() == 0);
                if (!full) {
                    for (const auto& device : devices.own) CHECK(device->slabs() <= 1);
                }
                CHECK(volume->retired_bytes() == 0);
                // No page is lost, and no old contents are visible.
                for (std::uint64_t page = 0; page != pages; ++page) {
                    PageRef ref = map_page(*volume, page);
                    REQUIRE(holds(ref.cpu(), page_size, 0));
                }
                CHECK(volume->allocated_bytes() == pages * page_size);
                volume.reset();
                CHECK(devices.used() == 0);
            }
        }
    }
}

TEST_CASE("volume: run_at against a simple model") {
    constexpr std::uint64_t page_size = 64 * kib;
    for (const std::uint64_t size : {std::uint64_t{1}, page_size - 1, page_size, page_size + 1,
                                     9 * page_size, 9 * page_size + 100}) {
        CAPTURE(size);
        Devices devices({mib}, true);
        const auto volume =
            checked(Volume::create({.size = size, .page_size = page_size}, devices.all));
        const std::uint64_t pages = (size - 1) / page_size + 1;
        Random random(static_cast<std::uint32_t>(size));
        for (int round = 0; round != 50; ++round) {
            std::vector<bool> mapped(pages);
            for (std::uint64_t page = 0; page != pages; ++page) {
                mapped[page] = random.one_in(2);
                PageRef ref;
                if (mapped[page]) {
                    REQUIRE(volume->map(page, ref) == Status::ok);
                } else {
                    volume->unmap(page);
                }
            }
            for (int query = 0; query != 50; ++query) {
                std::uint64_t from = random.below(static_cast<std::uint32_t>(size));
                if (random.one_in(3)) from -= from % page_size;
                std::uint64_t end =
                    from + 1 + random.below(static_cast<std::uint32_t>(size - from));
                if (random.one_in(3)) end = size;
                std::uint64_t at = from;
                while (at != end && mapped[at / page_size] == mapped[from / page_size]) {
                    at = std::min(end, (at / page_size + 1) * page_size);
                }
                const Volume::Run run = volume->run_at(from, end - from);
                REQUIRE(run.length == at - from);
                REQUIRE(run.device == (mapped[from / page_size] ? 1 : 0));
            }
        }
    }
}

TEST_CASE("volume: a volume that does not fit is refused with sizes, and allocates nothing") {
    constexpr auto thin = Provision::thin;
    constexpr auto full = Provision::full;
    const struct {
        const char* name;
        std::uint64_t size;
        std::uint64_t stripe_size;
        Provision provision;
        std::vector<std::uint64_t> capacities;
        std::optional<CapacityError> error;  // none: it fits
    } rows[] = {
        {"fits to the byte", 100 * mib, 0, full, {100 * mib}, {}},
        {"one byte more",
         100 * mib + 1,
         0,
         thin,
         {100 * mib},
         CapacityError{.asked = 100 * mib + 1, .available = 100 * mib, .largest = 100 * mib}},
        {"linear, full, to the byte", 100 * mib, 0, full, {70 * mib, 30 * mib}, {}},
        {"linear: the first has room for all", 100 * mib, 0, full, {100 * mib, 0}, {}},
        {"linear: the first has no room", 100 * mib, 0, full, {mib, 100 * mib}, {}},
        {"linear: less than a page on each",
         2 * mib,
         0,
         thin,
         {mib, mib},
         CapacityError{.asked = 2 * mib, .available = 0, .largest = 0}},
        {"stripe, full, to the byte", 100 * mib, 2 * mib, full, {50 * mib, 50 * mib}, {}},
        {"stripe: the second is too small",
         100 * mib,
         2 * mib,
         thin,
         {200 * mib, 49 * mib},
         CapacityError{.device = 1, .asked = 50 * mib, .available = 48 * mib, .largest = 96 * mib}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        Devices devices(row.capacities, true);
        {
            auto made = Volume::create({.size = row.size,
                                        .page_size = 2 * mib,
                                        .stripe_size = row.stripe_size,
                                        .provision = row.provision},
                                       devices.all);
            const auto* const error = std::get_if<CapacityError>(&made);
            if (row.error) {
                REQUIRE(error != nullptr);
                CHECK(*error == *row.error);
                CHECK(devices.used() == 0);
            } else {
                REQUIRE(error == nullptr);
                const auto& volume = *std::get<std::unique_ptr<Volume>>(made);
                CHECK(volume.size() == row.size);
                CHECK(volume.devices() == devices.all);
                CHECK(volume.allocated_bytes() == (row.provision == full ? row.size : 0));
            }
        }
        CHECK(devices.used() == 0);
    }
}

TEST_CASE("volume: a full device refuses pages, the hole stays, and freed memory is reused") {
    constexpr struct {
        std::uint64_t page_size, pages;
    } rows[] = {{2 * mib, 64}, {64 * mib, 4}, {64 * kib, 2048}};
    for (const auto& [page_size, pages] : rows) {
        CAPTURE(page_size);
        Devices devices({pages * page_size}, true);
        const auto volume = checked(
            Volume::create({.size = pages * page_size, .page_size = page_size}, devices.all));
        // Another export takes half of the device.
        auto other = checked(
            Volume::create({.size = pages * page_size / 2, .page_size = page_size}, devices.all));
        PageRef ref;
        for (std::uint64_t page = 0; page != pages / 2; ++page) {
            REQUIRE(other->map(page, ref) == Status::ok);
            stamp(ref.cpu(), page_size, 99);
        }
        for (std::uint64_t page = 0; page != pages / 2; ++page) {
            REQUIRE(volume->map(page, ref) == Status::ok);
            REQUIRE(holds(ref.cpu(), page_size, 0));
            stamp(ref.cpu(), page_size, page + 1);
        }
        for (std::uint64_t page = pages / 2; page != pages; ++page) {
            REQUIRE(volume->map(page, ref) == Status::no_space);
            REQUIRE(ref.hole());
            REQUIRE_FALSE(volume->mapped(page));
            REQUIRE(volume->find(page).hole());
        }
        CHECK(volume->mapped_bytes() == pages / 2 * page_size);
        // Memory that this volume has freed can be used again.
        volume->unmap(0);
        REQUIRE(volume->map(pages - 1, ref) == Status::ok);
        REQUIRE(holds(ref.cpu(), page_size, 0));
        CHECK(volume->map(0, ref) == Status::no_space);
        // So can memory of the other volume when it is destroyed.
        ref.reset();
        other.reset();
        for (std::uint64_t page = 0; page != pages; ++page) {
            const bool was_mapped = page != 0 && page < pages / 2;
            REQUIRE(volume->map(page, ref) == Status::ok);
            REQUIRE(holds(ref.cpu(), page_size, was_mapped ? page + 1 : 0));
        }
        CHECK(volume->mapped_bytes() == pages * page_size);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
