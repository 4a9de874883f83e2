// Spill memory that a volume gets while clients use it.
#include "tests/storage/family.hpp"
#include "tests/storage/migration/moving_rig.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

RigOptions bare_rig(std::string_view home, std::string_view spills) {
    RigOptions options{.devices = home, .spills = spills, .spills_later = true};
    options.size = 40 * options.page_size;
    return options;
}

Status write_to(Rig& rig, std::uint64_t page, std::uint32_t seed) {
    return Requests{rig, Random(1), {}, seed}.write(page * rig.options.page_size, 5000);
}

Status read_from(Rig& rig, std::uint64_t page) {
    return Requests{rig, Random(1)}.read(page * rig.options.page_size, 8000);
}

Status zero_on(Rig& rig, std::uint64_t page) {
    return Requests{rig, Random(1)}.zero(page * rig.options.page_size, 3000, true);
}

void write_to_first(Rig& rig, std::uint32_t pages) {
    for (std::uint32_t page = 0; page != pages; ++page) {
        REQUIRE(write_to(rig, page, page + 1) == Status::ok);
    }
}

void read_from_all(Rig& rig) {
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        CHECK(read_from(rig, page) == Status::ok);
    }
}

TEST_CASE("added spill memory: it is used in the order of the last call") {
    MovingRig rig(bare_rig("h", "hh"));
    rig.map_all();
    const auto place = [&] {
        const Migration out = rig.reclaim(MovingRig::all);
        REQUIRE(out.moved.size() <= 1);
        std::string id = out.moved.empty() ? "none" : out.moved.begin()->first;
        rig.release();
        return id;
    };
    REQUIRE(rig.set_spills({1, 2}) == "");
    CHECK(place() == "memory:1");
    REQUIRE(rig.set_spills({2, 1}) == "");
    CHECK(place() == "memory:2");
    REQUIRE(rig.set_spills({1}) == "");
    CHECK(place() == "memory:1");
    // As of memory that is not configured any more.
    rig.spill_budget.set_limit(0);
    REQUIRE(rig.set_spills({}) == "");
    CHECK(place() == "none");
    rig.spill_budget.set_limit(SlabBudget::unlimited);
    REQUIRE(rig.set_spills({2}) == "");
    CHECK(place() == "memory:2");
    CHECK(rig.volume->pools() == 3);  // those of an earlier call are used again
}

TEST_CASE("added spill memory: volumes that share pages have it too") {
    MovingRig rig(bare_rig("h", "h"));
    Family family(rig);
    write_to_first(rig, 20);
    REQUIRE(family.clone().empty());
    REQUIRE(family.clone().empty());
    family.use(0);
    REQUIRE(rig.set_spills({1}) == "");
    REQUIRE(write_to(rig, 30, 7) == Status::ok);
    family.use(0);
    family.remove(1);  // its table is gone from the new pool as well
    rig.migrate({rig.volumes[0], family.unowned(0)});
    const Migration out = rig.reclaim(MovingRig::all);
    CHECK(out.error.empty());
    CHECK(out.moved.at("memory:1") == 21 * rig.options.page_size);
    family.for_each([&] { read_from_all(rig); });
    CHECK(rig.volume->contents().shared == 20 * rig.options.page_size);
    rig.release();
    rig.migrate({rig.volumes[0]});
}

TEST_CASE("added spill memory: a volume that has had too much of it gets no more") {
    Rig rig(bare_rig("h", ""));
    std::vector<std::unique_ptr<MemoryDevice>> memories;
    for (std::uint32_t number = 1; number != 66; ++number) {
        memories.push_back(std::make_unique<MemoryDevice>(number, MemoryDevice::Options{}));
        const Spill spill{.device = memories.back().get(), .budget = &rig.spill_budget};
        CHECK(rig.volume->set_spills({spill}) ==
              (number != 65 ? ""
                            : "memory:65 is one device too many; it has had 65 since it was made"));
    }
    const auto spills = rig.volume->pool(0).spills();
    REQUIRE(spills.size() == 64);
    CHECK(&spills.front()->device() == memories[63].get());
    rig.volume.reset();
}

// Its pages can still be read.
class FailingDevice final : public LatchDevice {
 public:
    using LatchDevice::LatchDevice;
    bool failed() const override { return has_failed; }
    bool readable() const override { return true; }

    bool has_failed = false;
};

TEST_CASE("added spill memory: new pages and copies pass over memory that has failed") {
    FailingDevice failing(1, {});
    MemoryDevice works(2, {});
    RigOptions options = bare_rig("h", "");
    options.size = options.page_size;
    Rig rig(options);
    REQUIRE(rig.volume->set_spills({{.device = &failing, .budget = &rig.spill_budget},
                                    {.device = &works, .budget = &rig.spill_budget}}) == "");
    rig.devices[0]->budget().set_limit(0);
    rig.map_all();
    CHECK(rig.volume->memory()[1].mapped == options.page_size);
    failing.has_failed = true;
    const auto clone = checked(rig.volume->clone("clone", 2 * options.page_size));
    for (const std::uint64_t page : {0, 1}) {
        PageRef ref = map_page(*clone, page);
        CHECK(&ref.device() == &works);
    }
}

// Also if the page is in spill memory, and if it is copied because a client writes to it during a
// clone.
TEST_CASE("added spill memory: a copy takes memory in the order of new pages") {
    RigOptions options = bare_rig("h", "hh");
    options.size = 16 * options.page_size;
    MovingRig rig(options);
    Family family(rig);
    REQUIRE(rig.set_spills({1, 2}) == "");
    rig.memories[1]->set_capacity(8 * options.page_size);
    write_to_first(rig, 8);
    rig.reclaim(MovingRig::all);
    REQUIRE(rig.bytes_on(1) == 8 * options.page_size);
    const auto device_of = [&](std::uint64_t page) {
        return rig.volume->find(page).device().info().id;
    };
    {
        PageRef writer = map_page(*rig.volume, 7);
        REQUIRE(family.clone().empty());
        family.use(0);
        CHECK(device_of(7) == "memory:2");
    }
    std::uint32_t page = 0;
    const auto write_both = [&](const char* expected) {
        for (const std::uint32_t each : {page, page + 8}) {
            REQUIRE(write_to(rig, each, each) == Status::ok);
            CHECK(device_of(each) == expected);
        }
        ++page;
    };
    write_both("memory:2");
    rig.memories[1]->set_capacity(16 * options.page_size);
    write_both("memory:1");
    rig.home().budget().set_limit(SlabBudget::unlimited);
    write_both("memory:0");
    family.for_each([&] { read_from_all(rig); });
    rig.migrate({});
}

// Opening one of a GPU for each copy has delayed writes by 14 s.
TEST_CASE("added spill memory: copies of shared pages open no channels to it") {
    RigOptions options = bare_rig("h", "");
    options.size = 8 * options.page_size;
    LatchDevice spill(1, {});
    MovingRig rig(options);
    REQUIRE(rig.volume->set_spills({{.device = &spill, .budget = &rig.spill_budget}}) == "");
    write_to_first(rig, 8);
    Family family(rig);
    REQUIRE(family.clone().empty());
    rig.reclaim(MovingRig::all);
    rig.home().budget().set_limit(SlabBudget::unlimited);
    const int before = spill.channels_opened;
    for (std::uint32_t page = 0; page != 8; ++page) {
        REQUIRE(rig.volume->find(page).device().info().id == spill.info().id);
        CHECK(write_to(rig, page, page + 10) == Status::ok);
        CHECK(rig.volume->find(page).device().info().id == "memory:0");
    }
    CHECK(spill.channels_opened == before);
}

TEST_CASE("added spill memory: requests open the channel, or fail alone if that fails") {
    RigOptions options = bare_rig("h", "");
    options.page_size = 64 * mib;  // a slab
    options.size = 2 * options.page_size;
    Rig rig(options);
    LatchDevice spill(1, {});
    spill.channels_left = 0;
    REQUIRE(rig.volume->set_spills({{.device = &spill, .budget = &rig.spill_budget}}) == "");
    REQUIRE(write_to(rig, 0, 1) == Status::ok);
    rig.devices[0]->budget().set_limit(0);
    {
        PageRef ref = map_page(*rig.volume, 1);
        REQUIRE(&ref.device() == &spill);
    }
    CHECK(read_from(rig, 1) == Status::io_error);
    CHECK(zero_on(rig, 1) == Status::io_error);
    CHECK(write_to(rig, 1, 2) == Status::io_error);
    CHECK(read_from(rig, 0) == Status::ok);
    spill.channels_left = 1'000;
    CHECK(write_to(rig, 1, 3) == Status::ok);
    CHECK(zero_on(rig, 1) == Status::ok);
    CHECK(read_from(rig, 1) == Status::ok);
    rig.channels.reset();
    rig.volume.reset();
}

}  // namespace
}  // namespace gpunbd::storage::test
