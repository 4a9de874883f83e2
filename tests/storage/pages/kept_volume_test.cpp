// Kills a kept volume at every step: after each store into its table, and before and after each
// call of a device or of the kept parts. Then takes over the remaining state and compares it with a
// model.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/migration/page_mover.hpp"
#include "storage/pages/volume.hpp"
#include "tests/sanitized.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/cut_model.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/store_watch.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

struct CutCase {
    std::string name;
    std::uint64_t page_size;
    std::vector<std::uint64_t> shares;  // pages of each device
    std::uint64_t stripe;               // pages; 0: linear
    int steps;
    // Pages of spill memory. While a slow client reads old pages, the pools need more than the
    // export, so this is more. 0: none, and pages do not move.
    std::uint64_t spill = 0;

    std::uint64_t pages() const {
        std::uint64_t all = 0;
        for (const std::uint64_t share : shares) all += share;
        return all;
    }
    std::vector<std::uint64_t> capacities() const {
        std::vector<std::uint64_t> all = shares;
        if (spill != 0) all.push_back(spill);
        return all;
    }
    // Takes the spill memory off the devices, which are in the order of capacities().
    std::vector<Spill> take_spills(std::vector<Device*>& devices, SlabBudget& budget) const {
        if (spill == 0) return {};
        Device* const last = devices.back();
        devices.pop_back();
        return {{.home = 0, .device = last, .budget = &budget}};
    }
};

int steps_of(const CutCase& row) { return gpunbd::test::is_sanitized ? row.steps / 2 : row.steps; }

struct Cut {
    CrashImage image;
    Expected expected;
};

// A process that uses a kept volume. Each change that outlives the process creates an image.
class CutProcess {
 public:
    CutProcess(const CutCase& row, Provision provision, bool discards) : row_(row) {
        std::vector<Device*> all;
        for (const std::uint64_t share : row.capacities()) {
            const auto number = static_cast<std::uint32_t>(memories_.size());
            memories_.push_back(std::make_unique<MemoryDevice>(
                number,
                MemoryDevice::Options{.capacity = share * row.page_size, .discards = discards}));
            devices_.push_back(
                std::make_unique<CutDevice>(*memories_.back(), [this] { cut_here(); }));
            all.push_back(devices_.back().get());
        }
        const std::vector<Spill> spills = row.take_spills(all, spill_budget_);
        auto made =
            Volume::create({.size = row.pages() * row.page_size - 5,
                            .page_size = row.page_size,
                            .stripe_size = row.stripe * row.page_size,
                            .provision = provision},
                           all, {}, {.name = "cut", .wanted = {}, .kept_parts = store_}, spills);
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
        volume_ = std::get<std::unique_ptr<Volume>>(std::move(made));
        expected_.pages.resize(row.pages());
        for (const auto& device : devices_) mover_.open(*device);
        const std::lock_guard lock(instant_);
        is_watched_ = true;
    }
    ~CutProcess() {
        {
            const std::lock_guard lock(instant_);
            is_watched_ = false;
        }
        volume_->quiesce();  // no other thread may be at a store when the watch ends
        watch_.reset();
        held_.clear();
    }
    CutProcess(const CutProcess&) = delete;
    CutProcess& operator=(const CutProcess&) = delete;

    void watch_stores() {
        watch_.emplace(std::vector{entries_of(volume_->table_descriptor())}, instant_,
                       [this] { take_cut(); });
    }

    void step(Random& random) {
        const std::uint64_t page = random.below(static_cast<std::uint32_t>(row_.pages()));
        switch (random.below(row_.spill == 0 ? 7 : 10)) {
            case 0:
            case 1:
                write(page, random);
                break;
            case 2:
            case 3:
                unmap(page);
                break;
            case 4:
                zero(page);
                break;
            case 5:
                if (PageRef ref = volume_->find(page); !ref.hole()) held_.push_back(std::move(ref));
                break;
            case 7:
            case 8:
                move(page, 0, 1);
                break;
            case 9:
                move(page, 1, 0);
                break;
            default:
                if (held_.empty()) break;
                std::swap(held_[random.below(static_cast<std::uint32_t>(held_.size()))],
                          held_.back());
                held_.pop_back();
        }
    }

    std::vector<Cut> take_cuts() {
        const std::lock_guard lock(instant_);
        return std::exchange(cuts_, {});
    }

 private:
    void begin(std::uint64_t page, const PageModel& changed, Expected::How how) {
        const std::lock_guard lock(instant_);
        expected_.changing = page;
        expected_.changed = changed;
        expected_.how = how;
    }
    // The operation is acknowledged.
    void end() {
        const std::lock_guard lock(instant_);
        expected_.pages[*expected_.changing] = expected_.changed;
        expected_.changing.reset();
        take_cut();
    }

    // Maps the page if it is a hole, and writes words to it.
    void write(std::uint64_t page, Random& random) {
        PageModel mapped = expected_.pages[page];
        mapped.is_mapped = true;
        begin(page, mapped, Expected::How::wholly);
        PageRef ref;
        const Status status =
            random.one_in(2) ? volume_->map(page, ref) : asking_.acquire(*volume_, page, ref);
        REQUIRE(status == Status::ok);
        REQUIRE(look_at_page(*volume_, page).words == mapped.words);
        end();
        ++stamp_;
        store_words(page, ref, {stamp_, stamp_ << 20, stamp_ << 40});
    }
    // The contents stay.
    void move(std::uint64_t page, std::uint32_t from, std::uint32_t to) {
        PageToMove moving{.volume = volume_.get(),
                          .from = &volume_->pool(from),
                          .to = &volume_->pool(to),
                          .number = page};
        MoveQueue queue({&moving, 1});
        mover_.move(queue);
    }
    void zero(std::uint64_t page) {
        const PageRef ref = volume_->find(page);
        if (!ref.hole()) store_words(page, ref, {});
    }
    void store_words(std::uint64_t page, const PageRef& ref, const PageWords& words) {
        begin(page, {.is_mapped = true, .words = words}, Expected::How::word_by_word);
        const auto places = places_in(row_.page_size);
        for (std::size_t i = 0; i != places.size(); ++i) {
            const std::lock_guard lock(instant_);
            std::atomic_ref(*word_at(ref, places[i])).store(words[i]);
            take_cut();
        }
        end();
    }
    void unmap(std::uint64_t page) {
        begin(page, {}, Expected::How::wholly);
        volume_->unmap(page);
        end();
    }

    void cut_here() {
        const std::lock_guard lock(instant_);
        take_cut();
    }
    // Requires that `instant_` is held.
    void take_cut() {
        if (!is_watched_) return;
        cuts_.push_back({.image = read_image(volume_->table_descriptor(), *store_, row_.page_size),
                         .expected = expected_});
    }

    const CutCase& row_;
    std::mutex
        instant_;  // held during every change that outlives the process, and between two cuts
    bool is_watched_ = false;
    Expected expected_;
    std::vector<Cut> cuts_;
    std::uint64_t stamp_ = 0;
    const std::shared_ptr<FakeParts> store_ = std::make_shared<FakeParts>([this] { cut_here(); });
    std::vector<std::unique_ptr<MemoryDevice>> memories_;
    std::vector<std::unique_ptr<CutDevice>> devices_;
    SlabBudget spill_budget_;
    std::unique_ptr<Volume> volume_;
    std::optional<StoreWatch> watch_;
    std::vector<PageRef> held_;
    TestWaiter asking_;
    PageMover mover_{{.chunk_size = 1 << 20, .slots = 2, .pinned = 1 << 20}};
};

// The next process: takes over an image, on devices without a spare byte.
class NextProcess {
 public:
    NextProcess(const CutCase& row, bool discards, const CrashImage& image) : row_(row) {
        std::vector<Device*> all;
        for (const std::uint64_t share : row.capacities()) {
            memories_.push_back(std::make_unique<MemoryDevice>(
                static_cast<std::uint32_t>(memories_.size()),
                MemoryDevice::Options{.capacity = share * row.page_size, .discards = discards}));
            all.push_back(memories_.back().get());
        }
        const std::vector<Spill> spills = row.take_spills(all, spill_budget_);
        table_ = restore_image(image, row.page_size, *store_);
        auto table = PageTable::open(OwnedFd::copy_of(table_.get()));
        REQUIRE(std::holds_alternative<PageTable>(table));
        auto taken = Volume::take_over(std::move(std::get<PageTable>(table)), all, store_->copies(),
                                       store_, false, nullptr, spills);
        if (const auto* const why = std::get_if<std::string>(&taken)) FAIL(*why);
        volume_ = std::get<std::unique_ptr<Volume>>(std::move(taken));
    }
    void look() {
        std::set<std::uint64_t> addresses;
        std::uint64_t mapped = 0;
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            model_.push_back(look_at_page(*volume_, page));
            if (!model_.back().is_mapped) continue;
            ++mapped;
            REQUIRE(addresses.insert(volume_->find(page).address()).second);
        }
        REQUIRE(volume_->mapped_bytes() == mapped * row_.page_size);
        REQUIRE(volume_->retired_bytes() == 0);
        if (volume_->shape().provision == Provision::full) check_all_is_taken();
    }

    void compare(const Expected& expected) const {
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            CAPTURE(page);
            REQUIRE(expected.allows(page, model_[page]));
        }
    }

    void work_on(Random& random) {
        for (std::uint64_t stamp = 1; stamp != 6; ++stamp) {
            const std::uint64_t page = random.below(static_cast<std::uint32_t>(row_.pages()));
            if (random.one_in(3)) {
                volume_->unmap(page);
                model_[page] = {};
            } else {
                map_and_write(page, {~stamp, stamp, ~stamp});
            }
        }
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            if (!model_[page].is_mapped) map_and_write(page, {page, ~page, page});
        }
        check_all_is_taken();
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            REQUIRE(Expected::is(look_at_page(*volume_, page), model_[page]));
        }
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            if (random.one_in(2)) volume_->unmap(page);
        }
    }

    // Checks that exactly its slabs are kept.
    void end() {
        volume_.reset();
        for (const auto& memory : memories_) REQUIRE(memory->used() == 0);
        auto opened = PageTable::open(OwnedFd::copy_of(table_.get()));
        REQUIRE(std::holds_alternative<PageTable>(opened));
        const auto& table = std::get<PageTable>(opened);
        std::vector<FakeParts::Number> in_directory;
        for (std::uint32_t device = 0; device != row_.capacities().size(); ++device) {
            const SlabDirectory slabs = table.slabs(device);
            for (std::uint32_t i = 0; i != slabs.slabs(); ++i) {
                if (slabs.load(i).pages != 0) in_directory.emplace_back(device, i);
            }
        }
        REQUIRE(store_->numbers() == in_directory);
    }

 private:
    void map_and_write(std::uint64_t page, const PageWords& words) {
        PageRef ref;
        REQUIRE(volume_->map(page, ref) == Status::ok);
        REQUIRE(look_at_page(*volume_, page).words ==
                model_[page].words);  // a hole reads as zeroes
        const auto places = places_in(row_.page_size);
        for (std::size_t i = 0; i != places.size(); ++i) {
            std::memcpy(ref.cpu() + places[i], &words[i], sizeof words[i]);
        }
        model_[page] = {.is_mapped = true, .words = words};
    }
    void check_all_is_taken() const {
        if (row_.spill != 0) return;
        REQUIRE(volume_->allocated_bytes() == row_.pages() * row_.page_size);
        for (const auto& memory : memories_) REQUIRE(memory->available() == 0);
    }

    const CutCase& row_;
    const std::shared_ptr<FakeParts> store_ = std::make_shared<FakeParts>();
    std::vector<std::unique_ptr<MemoryDevice>> memories_;
    SlabBudget spill_budget_;
    std::unique_ptr<Volume> volume_;
    OwnedFd table_;
    std::vector<PageModel> model_;
};

void kill_at_each_step(const CutCase& row, Provision provision, bool discards) {
    CutProcess process(row, provision, discards);
    if (StoreWatch::is_possible()) process.watch_stores();
    Random random(static_cast<std::uint32_t>(row.pages()));
    for (int step = 0; step != steps_of(row); ++step) {
        process.step(random);
        CAPTURE(step);
        const std::vector<Cut> cuts = process.take_cuts();
        for (auto cut = cuts.begin(); cut != cuts.end();) {
            const CrashImage& image = cut->image;
            NextProcess next(row, discards, image);
            next.look();
            for (; cut != cuts.end() && cut->image == image; ++cut) {
                next.compare(cut->expected);
            }
            next.work_on(random);
            next.end();
        }
    }
}

// A process that takes over an image and is killed meanwhile.
class CutTakeOver {
 public:
    CutTakeOver(const CutCase& row, bool discards, const CrashImage& image) : row_(row) {
        table_ = restore_image(image, row.page_size, *store_);
        std::vector<Device*> all;
        for (const std::uint64_t share : row.capacities()) {
            const auto number = static_cast<std::uint32_t>(memories_.size());
            memories_.push_back(std::make_unique<MemoryDevice>(
                number,
                MemoryDevice::Options{.capacity = share * row.page_size, .discards = discards}));
            devices_.push_back(
                std::make_unique<CutDevice>(*memories_.back(), [this] { cut_here(); }));
            all.push_back(devices_.back().get());
        }
        const std::vector<Spill> spills = row.take_spills(all, spill_budget_);
        auto table = PageTable::open(OwnedFd::copy_of(table_.get()));
        REQUIRE(std::holds_alternative<PageTable>(table));
        auto slabs = store_->copies();
        std::optional<StoreWatch> watch;
        if (StoreWatch::is_possible()) {
            watch.emplace(std::vector{entries_of(table_)}, instant_, [this] { take_cut(); });
        }
        is_watched_ = true;
        auto taken = Volume::take_over(std::move(std::get<PageTable>(table)), all, std::move(slabs),
                                       store_, false, nullptr, spills);
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(taken));
        cut_here();
        is_watched_ = false;
        std::get<std::unique_ptr<Volume>>(taken)->quiesce();  // as in ~CutProcess
        watch.reset();
    }
    CutTakeOver(const CutTakeOver&) = delete;
    CutTakeOver& operator=(const CutTakeOver&) = delete;

    const std::vector<CrashImage>& cuts() const { return cuts_; }

 private:
    void cut_here() {
        const std::lock_guard lock(instant_);
        take_cut();
    }
    void take_cut() {
        if (!is_watched_) return;
        CrashImage now = read_image(table_, *store_, row_.page_size);
        if (cuts_.empty() || cuts_.back() != now) cuts_.push_back(std::move(now));
    }

    const CutCase& row_;
    std::mutex instant_;
    std::atomic<bool> is_watched_{false};
    std::vector<CrashImage> cuts_;
    const std::shared_ptr<FakeParts> store_ = std::make_shared<FakeParts>([this] { cut_here(); });
    OwnedFd table_;
    std::vector<std::unique_ptr<MemoryDevice>> memories_;
    std::vector<std::unique_ptr<CutDevice>> devices_;
    SlabBudget spill_budget_;
};

// Runs for some of the images only.
void kill_again(const CutCase& row, Provision provision, bool discards) {
    std::vector<Cut> cuts;
    Random random(static_cast<std::uint32_t>(row.pages()));
    {
        CutProcess process(row, provision, discards);
        if (StoreWatch::is_possible()) process.watch_stores();
        for (int step = 0; step != steps_of(row); ++step) {
            process.step(random);
            for (Cut& cut : process.take_cuts()) {
                if (random.one_in(8)) cuts.push_back(std::move(cut));
            }
        }
    }
    for (const Cut& cut : cuts) {
        const CutTakeOver again(row, discards, cut.image);
        for (const CrashImage& image : again.cuts()) {
            NextProcess next(row, discards, image);
            next.look();
            next.compare(cut.expected);
            next.work_on(random);
            next.end();
        }
    }
}

void kill_at_each_step(const std::vector<CutCase>& rows) {
    if (!StoreWatch::is_possible()) {
        MESSAGE("skipped here: cuts behind each store; those at calls are made");
    }
    for (const CutCase& row : rows) {
        for (const Provision provision : {Provision::thin, Provision::full}) {
            for (const bool discards : {true, false}) {
                CAPTURE(row.name);
                CAPTURE(discards);
                const bool is_full = provision == Provision::full;
                CAPTURE(is_full);
                kill_at_each_step(row, provision, discards);
            }
        }
    }
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (small pages)") {
    kill_at_each_step(
        {{"a slab", 4 * kib, {24}, 0, 60}, {"linear over two", 4 * kib, {5, 9}, 0, 60}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (small slabs)") {
    kill_at_each_step(
        {{"with a rest", 16 * mib, {11}, 0, 80}, {"striped over two", 16 * mib, {9, 8}, 3, 80}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (large pages)") {
    kill_at_each_step(
        {{"one device", 64 * mib, {6}, 0, 100}, {"striped over two", 64 * mib, {3, 3}, 1, 100}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (pages move)") {
    kill_at_each_step({{"small pages", 4 * kib, {12}, 0, 120, 40},
                       {"few pages in a slab", 16 * mib, {5}, 0, 60, 40}});
}

TEST_CASE("kept volume: killed during a takeover, it has all acknowledged contents") {
    const CutCase rows[] = {{"small pages", 4 * kib, {24}, 0, 40},
                            {"few pages in a slab", 16 * mib, {9, 8}, 3, 40},
                            {"a page is a slab", 64 * mib, {6}, 0, 60},
                            {"pages move", 4 * kib, {12}, 0, 60, 40}};
    for (const CutCase& row : rows) {
        for (const Provision provision : {Provision::thin, Provision::full}) {
            CAPTURE(row.name);
            kill_again(row, provision, provision == Provision::thin);
            kill_again(row, provision, false);
        }
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
