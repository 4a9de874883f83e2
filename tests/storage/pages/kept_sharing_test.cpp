// Kills kept volumes that share pages at every step: after each store into one of their tables or
// into their slab directory, and before and after each call of a device or of kept parts. Then
// takes over the remaining state and compares each volume with its model.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/base/memory_file.hpp"
#include "storage/migration/page_mover.hpp"
#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/cut_model.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/store_watch.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

using VolumeNumber = int;

// What a supervisor has of the volumes.
struct SharedStore {
    explicit SharedStore(std::function<void()> cut = {}) : slabs(std::move(cut)) {}

    FakeParts slabs;
    std::map<VolumeNumber, OwnedFd> tables;
    OwnedFd directory;
};

class MemberParts final : public KeptParts {
 public:
    // `at_table` is called with the table, and keeps it.
    using AtTable = std::function<void(OwnedFd)>;
    MemberParts(SharedStore& store, AtTable at_table)
        : store_(store), at_table_(std::move(at_table)) {}

    bool keep_table(const OwnedFd& descriptor) noexcept override {
        if (refuses_table) return false;
        at_table_(OwnedFd::copy_of(descriptor));
        return true;
    }
    bool keep_directory(const OwnedFd& descriptor) noexcept override {
        if (refuses_directory) return false;
        CHECK_FALSE(store_.directory);
        store_.directory = OwnedFd::copy_of(descriptor);
        return true;
    }
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override {
        return store_.slabs.keep(device, slab, descriptor);
    }
    void drop(std::uint32_t device, std::uint32_t slab) noexcept override {
        store_.slabs.drop(device, slab);
    }
    bool keeps() const noexcept override { return !is_forgotten; }

    std::atomic<bool> is_forgotten{false};
    bool refuses_table = false;
    bool refuses_directory = false;

 private:
    SharedStore& store_;
    const AtTable at_table_;
};

// The words of a directory file that are not zero, by their offset.
using DirectoryContents = std::map<std::size_t, std::uint64_t>;

struct SharedImage {
    std::map<VolumeNumber, std::vector<std::byte>> tables;
    std::size_t directory_bytes = 0;
    DirectoryContents directory;
    CrashImage slabs;
    bool operator==(const SharedImage&) const = default;
};

SharedImage read_shared_image(const SharedStore& store, std::uint64_t page_size) {
    SharedImage image;
    image.slabs = read_image(store.tables.begin()->second, store.slabs, page_size);
    image.slabs.table.clear();
    for (const auto& [number, table] : store.tables) image.tables[number] = table_in(table);
    if (!store.directory) return image;
    const std::vector<std::byte> bytes = table_in(store.directory);
    image.directory_bytes = static_cast<std::size_t>(::lseek(store.directory.get(), 0, SEEK_END));
    for (std::size_t at = 0; at != bytes.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, &bytes[at], sizeof word);
        if (word != 0) image.directory[at] = word;
    }
    return image;
}

struct SharedCase {
    std::string name;
    std::uint64_t page_size;
    std::vector<std::uint64_t> shares;  // pages of each device
    std::uint64_t stripe;               // pages; 0: linear
    int steps;
    bool spills = false;  // to another device
    Provision provision = Provision::thin;
    bool discards = true;
    bool spills_later = false;  // the volumes are made without spill memory

    std::uint32_t pages() const {
        std::uint64_t all = 0;
        for (const std::uint64_t share : shares) all += share;
        return static_cast<std::uint32_t>(all);
    }
    std::size_t devices() const { return shares.size() + (spills ? 1 : 0); }
};

struct SharedDevices {
    std::vector<std::unique_ptr<MemoryDevice>> memories;
    std::vector<std::unique_ptr<CutDevice>> cuts;
    std::vector<Device*> layout;
    SlabBudget budget;
    std::vector<Spill> spills;

    SharedDevices(const SharedCase& row, const std::function<void()>& cut) {
        for (std::uint32_t number = 0; number != row.devices(); ++number) {
            memories.push_back(std::make_unique<MemoryDevice>(
                number, MemoryDevice::Options{.discards = row.discards}));
            cuts.push_back(std::make_unique<CutDevice>(*memories.back(), cut));
            if (number < row.shares.size()) {
                layout.push_back(cuts.back().get());
            } else {
                spills.push_back({.home = 0, .device = cuts.back().get(), .budget = &budget});
            }
        }
    }
};

using SharedExpected = std::map<VolumeNumber, Expected>;

struct SharedCut {
    SharedImage image;
    SharedExpected expected;
};

// A process that uses the volumes.
class SharingProcess {
 public:
    explicit SharingProcess(const SharedCase& row)
        : row_(row), devices_(row, [this] { cut_here(); }) {
        const VolumeNumber number = next_number_++;
        expected_[number].pages.resize(row.pages());
        auto made =
            Volume::create({.size = row.pages() * row.page_size,
                            .page_size = row.page_size,
                            .stripe_size = row.stripe * row.page_size,
                            .provision = row.provision},
                           devices_.layout, {}, {.name = "cut", .kept_parts = retainer_for(number)},
                           row.spills_later ? std::vector<Spill>() : devices_.spills);
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
        volumes_[number] = std::get<std::unique_ptr<Volume>>(std::move(made));
        for (const auto& device : devices_.cuts) mover_.open(*device);
        const std::lock_guard lock(instant_);
        is_watched_ = true;
    }
    ~SharingProcess() {
        {
            const std::lock_guard lock(instant_);
            is_watched_ = false;
        }
        volumes_.begin()->second->quiesce();  // no other thread may be at a store then
        watch_.reset();
        held_.clear();
    }
    SharingProcess(const SharingProcess&) = delete;
    SharingProcess& operator=(const SharingProcess&) = delete;

    void step(Random& random) {
        const VolumeNumber number = any_volume(random);
        const auto pages = static_cast<std::uint32_t>(volumes_.at(number)->pages());
        const std::uint64_t page = random.below(pages);
        switch (random.below(row_.spills ? 11 : 9)) {
            case 0:
            case 1:
            case 2:
                return write(number, page, random);
            case 3:
                return unmap(number, page);
            case 4:
            case 5:
                if (volumes_.size() < 4) return clone(number);
                [[fallthrough]];
            case 6:
                if (volumes_.size() > 1) end(number);
                return;
            case 7:
                return resize(number, random.between(1, 2 * row_.pages()));
            case 9:
                return move(number, page, 0, devices_.layout.size());
            case 10:
                return move(number, page, devices_.layout.size(), 0);
            default:
                if (held_.size() == 3) held_.clear();
                if (PageRef ref = volumes_[number]->find(page); !ref.hole()) {
                    held_.push_back(std::move(ref));
                }
        }
    }
    std::vector<SharedCut> take_cuts() {
        const std::lock_guard lock(instant_);
        return std::exchange(cuts_, {});
    }
    // A clone of a kept volume that is not made, since the supervisor keeps a part of it not.
    void refuse_clone(bool table) {
        const VolumeNumber number = volumes_.begin()->first;
        const VolumeNumber clone = next_number_++;
        const std::uint64_t shared = volumes_[number]->contents().shared;
        const auto kept_parts = retainer_for(clone);
        kept_parts->refuses_table = table;
        retainers_.at(number)->refuses_directory = !table;
        const auto made =
            volumes_[number]->clone(KeepOptions{.name = "refused", .kept_parts = kept_parts});
        retainers_.at(number)->refuses_directory = false;
        REQUIRE(std::holds_alternative<std::string>(made));
        CHECK(std::get<std::string>(made) ==
              (table ? "the supervisor does not keep its page table"
                     : "the supervisor does not keep its slab directory"));
        CHECK(volumes_[number]->contents().shared == shared);
        retainers_.erase(clone);
    }
    void fill(Random& random) {
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            write(volumes_.begin()->first, page, random);
        }
    }
    void clone_first() { clone(volumes_.begin()->first); }

 private:
    VolumeNumber any_volume(Random& random) {
        auto at = volumes_.begin();
        std::advance(at, random.below(static_cast<std::uint32_t>(volumes_.size())));
        return at->first;
    }

    std::shared_ptr<MemberParts> retainer_for(VolumeNumber number) {
        auto kept_parts = std::make_shared<MemberParts>(store_, [this, number](OwnedFd table) {
            const std::lock_guard lock(instant_);
            store_.tables[number] = std::move(table);
            if (cloned_) expected_[number] = expected_.at(*cloned_);
            take_cut();
        });
        retainers_[number] = kept_parts;
        return kept_parts;
    }

    void watch() {
        watch_.reset();
        if (!StoreWatch::is_possible()) return;
        std::vector<StoreWatch::Range> ranges;
        ranges.reserve(store_.tables.size() + 1);
        for (const auto& [unused, table] : store_.tables) ranges.push_back(entries_of(table));
        if (store_.directory) ranges.push_back(mapping_of(store_.directory));
        watch_.emplace(std::move(ranges), instant_, [this] { take_cut(); });
    }

    void begin(VolumeNumber number, std::uint64_t page, const PageModel& changed,
               Expected::How how) {
        const std::lock_guard lock(instant_);
        Expected& expected = expected_.at(number);
        expected.changing = page;
        expected.changed = changed;
        expected.how = how;
    }
    void acknowledge(VolumeNumber number) {
        const std::lock_guard lock(instant_);
        Expected& expected = expected_.at(number);
        expected.pages[*expected.changing] = expected.changed;
        expected.changing.reset();
        take_cut();
    }
    void write(VolumeNumber number, std::uint64_t page, Random& random) {
        watch();
        Volume& volume = *volumes_.at(number);
        PageModel mapped = expected_.at(number).pages[page];
        mapped.is_mapped = true;
        begin(number, page, mapped, Expected::How::wholly);
        PageRef ref;
        const Status status =
            random.one_in(2) ? volume.map(page, ref) : asking_.acquire(volume, page, ref);
        REQUIRE(status == Status::ok);
        REQUIRE(look_at_page(volume, page).words == mapped.words);
        acknowledge(number);
        ++stamp_;
        const PageWords words{stamp_, stamp_ << 20, stamp_ << 40};
        begin(number, page, {.is_mapped = true, .words = words}, Expected::How::word_by_word);
        const auto places = places_in(row_.page_size);
        for (std::size_t i = 0; i != places.size(); ++i) {
            const std::lock_guard lock(instant_);
            std::atomic_ref(*word_at(ref, places[i])).store(words[i]);
            take_cut();
        }
        acknowledge(number);
    }
    void resize(VolumeNumber number, std::uint64_t pages) {
        if (pages == volumes_.at(number)->pages()) return;
        watch();
        {
            const std::lock_guard lock(instant_);
            Expected& expected = expected_.at(number);
            expected.resized = expected.pages;
            expected.resized->resize(pages);
        }
        REQUIRE(volumes_.at(number)->resize(pages * row_.page_size) == "");
        const std::lock_guard lock(instant_);
        Expected& expected = expected_.at(number);
        expected.pages = *std::exchange(expected.resized, {});
        take_cut();
    }
    void unmap(VolumeNumber number, std::uint64_t page) {
        watch();
        begin(number, page, {}, Expected::How::wholly);
        volumes_.at(number)->unmap(page);
        acknowledge(number);
    }
    void clone(VolumeNumber source) {
        watch();
        const VolumeNumber number = next_number_++;
        const auto kept_parts = retainer_for(number);
        cloned_ = source;
        auto made =
            volumes_.at(source)->clone(KeepOptions{.name = "clone", .kept_parts = kept_parts});
        cloned_.reset();
        if (const auto* const why = std::get_if<std::string>(&made)) FAIL(*why);
        volumes_[number] = std::get<std::unique_ptr<Volume>>(std::move(made));
        cut_here();
    }
    void end(VolumeNumber number) {
        watch();
        {
            const std::lock_guard lock(instant_);
            store_.tables.erase(number);
            expected_.erase(number);
            retainers_.at(number)->is_forgotten = true;
            take_cut();
        }
        watch_.reset();  // the table is unmapped
        volumes_.erase(number);
        retainers_.erase(number);
        cut_here();
    }
    void move(VolumeNumber number, std::uint64_t page, std::size_t from, std::size_t to) {
        watch();
        Volume& volume = *volumes_.at(number);
        if (!volume.has_spills()) {
            REQUIRE(volume.set_spills(devices_.spills) == "");
            return cut_here();
        }
        PageToMove moving{.volume = &volume,
                          .from = &volume.pool(static_cast<std::uint32_t>(from)),
                          .to = &volume.pool(static_cast<std::uint32_t>(to)),
                          .number = page};
        MoveQueue queue({&moving, 1});
        mover_.move(queue);
    }

    void cut_here() {
        const std::lock_guard lock(instant_);
        take_cut();
    }
    // Requires that `instant_` is held.
    void take_cut() {
        if (!is_watched_) return;
        cuts_.push_back({read_shared_image(store_, row_.page_size), expected_});
    }

    const SharedCase& row_;
    std::mutex instant_;  // held during every change that outlives the process
    bool is_watched_ = false;
    SharedExpected expected_;
    std::optional<VolumeNumber> cloned_;
    std::vector<SharedCut> cuts_;
    std::uint64_t stamp_ = 0;
    VolumeNumber next_number_ = 0;
    SharedStore store_{[this] { cut_here(); }};
    SharedDevices devices_;
    std::map<VolumeNumber, std::shared_ptr<MemberParts>> retainers_;
    std::map<VolumeNumber, std::unique_ptr<Volume>> volumes_;
    std::optional<StoreWatch> watch_;
    std::vector<PageRef> held_;
    TestWaiter asking_;
    PageMover mover_{{.chunk_size = 1 << 20, .slots = 2, .pinned = 1 << 20}};
};

// The next process.
class NextSharing {
 public:
    NextSharing(const SharedCase& row, const SharedImage& image) : row_(row), devices_(row, [] {}) {
        KeptVolumes contents;
        std::vector<VolumeNumber> numbers;
        for (const auto& [number, bytes] : image.tables) {
            store_.tables[number] = file_with_table(bytes);
            auto table = PageTable::open(OwnedFd::copy_of(store_.tables[number].get()));
            REQUIRE(std::holds_alternative<PageTable>(table));
            retainers_[number] = std::make_shared<MemberParts>(store_, [](OwnedFd) {});
            contents.members.push_back({std::get<PageTable>(std::move(table)), retainers_[number]});
            numbers.push_back(number);
        }
        restore_image(image.slabs, row.page_size, store_.slabs);
        contents.slabs = store_.slabs.copies();
        if (image.directory_bytes != 0) {
            store_.directory = make_memory_file(image.directory_bytes);
            for (const auto& [at, word] : image.directory) {
                REQUIRE(::pwrite(store_.directory.get(), &word, sizeof word,
                                 static_cast<off_t>(at)) == sizeof word);
            }
            auto directory = SharedDirectory::open(OwnedFd::copy_of(store_.directory.get()));
            REQUIRE(std::holds_alternative<SharedDirectory>(directory));
            contents.directory =
                std::make_shared<SharedDirectory>(std::get<SharedDirectory>(std::move(directory)));
        }
        const bool has_spills = !row.spills_later || (contents.directory != nullptr &&
                                                      !contents.directory->added().empty());
        auto taken = Volume::take_over(std::move(contents), devices_.layout, false, nullptr,
                                       has_spills ? devices_.spills : std::vector<Spill>());
        if (const auto* const why = std::get_if<std::string>(&taken)) FAIL(*why);
        for (std::size_t i = 0; i != numbers.size(); ++i) {
            volumes_[numbers[i]] = std::move(std::get<Volume::Volumes>(taken)[i]);
        }
    }

    void look() {
        for (const auto& [number, volume] : volumes_) {
            std::uint64_t mapped = 0;
            for (std::uint64_t page = 0; page != volume->pages(); ++page) {
                models_[number].push_back(look_at_page(*volume, page));
                if (models_[number].back().is_mapped) ++mapped;
            }
            REQUIRE(volume->mapped_bytes() == mapped * row_.page_size);
        }
    }
    void compare(const SharedExpected& expected) const {
        REQUIRE(expected.size() == volumes_.size());
        for (const auto& [number, each] : expected) {
            CAPTURE(number);
            REQUIRE(each.allows(models_.at(number)));
        }
    }
    // Writes to one volume change no other one, and volumes end in any order.
    void work_on(Random& random) {
        std::uint64_t stamp = 0;
        for (const auto& [number, volume] : volumes_) {
            if (random.one_in(3)) {
                REQUIRE(volume->resize((volume->pages() + 2) * row_.page_size) == "");
                models_[number].resize(volume->pages());
            }
            for (std::uint64_t page = 0; page != volume->pages(); ++page) {
                if (random.one_in(3)) continue;
                PageRef ref;
                REQUIRE(volume->map(page, ref) == Status::ok);
                ++stamp;
                const PageWords words{~stamp, stamp, ~stamp};
                const auto places = places_in(row_.page_size);
                for (std::size_t i = 0; i != places.size(); ++i) {
                    std::memcpy(ref.cpu() + places[i], &words[i], sizeof words[i]);
                }
                models_[number][page] = {.is_mapped = true, .words = words};
            }
        }
        check_models();
        while (volumes_.size() > 1) {
            auto at = volumes_.begin();
            std::advance(at, random.below(static_cast<std::uint32_t>(volumes_.size())));
            retainers_.at(at->first)->is_forgotten = true;
            volumes_.erase(at);
            check_models();
        }
    }
    // Checks that exactly the slabs in the directory are kept.
    void end() {
        const auto& [number, last] = *volumes_.begin();
        last->quiesce();  // no slab is allocated ahead meanwhile
        const std::uint64_t allocated = last->allocated_bytes();
        const OwnedFd kept_table = OwnedFd::copy_of(store_.tables.at(number).get());
        std::uint64_t used = 0;
        for (const auto& memory : devices_.memories) used += memory->used();
        REQUIRE(used == allocated);
        volumes_.clear();
        for (const auto& memory : devices_.memories) REQUIRE(memory->used() == 0);
        std::vector<FakeParts::Number> in_directory;
        auto table = PageTable::open(OwnedFd::copy_of(kept_table.get()));
        for (std::uint32_t device = 0; device != row_.devices(); ++device) {
            const PageTable& kept = std::get<PageTable>(table);
            SlabDirectory slabs;
            if (device < kept.shape().devices.size()) slabs = kept.slabs(device);
            std::optional<SharedDirectory> shared;
            if (store_.directory) {
                auto opened = SharedDirectory::open(OwnedFd::copy_of(store_.directory.get()));
                shared.emplace(std::get<SharedDirectory>(std::move(opened)));
                const bool is_there =
                    device < shared->devices() + static_cast<std::uint32_t>(shared->added().size());
                if (is_there && shared->in_use(device)) slabs = shared->slabs(device);
            }
            for (std::uint32_t i = 0; i != slabs.slabs(); ++i) {
                if (slabs.load(i).pages != 0) in_directory.emplace_back(device, i);
            }
        }
        REQUIRE(store_.slabs.numbers() == in_directory);
    }

 private:
    void check_models() const {
        for (const auto& [number, volume] : volumes_) {
            for (std::uint64_t page = 0; page != volume->pages(); ++page) {
                CAPTURE(number);
                CAPTURE(page);
                REQUIRE(Expected::is(look_at_page(*volume, page), models_.at(number)[page]));
            }
        }
    }

    const SharedCase& row_;
    SharedStore store_;
    SharedDevices devices_;
    std::map<VolumeNumber, std::shared_ptr<MemberParts>> retainers_;
    std::map<VolumeNumber, std::unique_ptr<Volume>> volumes_;
    std::map<VolumeNumber, std::vector<PageModel>> models_;
};

void check_cuts(const SharedCase& row, const std::vector<SharedCut>& cuts, Random& random) {
    for (auto cut = cuts.begin(); cut != cuts.end();) {
        const SharedImage& image = cut->image;
        NextSharing next(row, image);
        next.look();
        for (; cut != cuts.end() && cut->image == image; ++cut) next.compare(cut->expected);
        next.work_on(random);
        next.end();
    }
}

void kill_at_each_step(const SharedCase& row) {
    CAPTURE(row.name);
    SharingProcess process(row);
    Random random(row.pages());
    for (int step = 0; step != row.steps; ++step) {
        CAPTURE(step);
        process.step(random);
        check_cuts(row, process.take_cuts(), random);
    }
}

TEST_CASE("kept clones: killed at any step, all volumes have their acknowledged contents") {
    if (!StoreWatch::is_possible()) {
        MESSAGE("skipped here: cuts behind each store; those at calls are made");
    }
    kill_at_each_step({"small pages", 4 * kib, {6}, 0, 30});
    kill_at_each_step({"full", 4 * kib, {5}, 0, 25, false, Provision::full});
    kill_at_each_step({"two devices", 16 * mib, {3, 2}, 0, 20, false, Provision::thin, false});
    kill_at_each_step({"striped, full", 16 * mib, {4, 4}, 1, 15, false, Provision::full, false});
}

TEST_CASE("kept clones: killed at any step while pages move, all volumes have their contents") {
    kill_at_each_step({"small pages", 4 * kib, {5}, 0, 30, true});
    kill_at_each_step({"a page is a slab", 64 * mib, {3}, 0, 15, true, Provision::thin, false});
    kill_at_each_step({"added later", 4 * kib, {5}, 0, 30, true, Provision::thin, true, true});
    kill_at_each_step(
        {"added later, full", 4 * kib, {5}, 0, 30, true, Provision::full, true, true});
}

TEST_CASE("kept clones: a supervisor that does not keep them leaves the source as it was") {
    const SharedCase row{"small pages", 4 * kib, {6}, 0, 0};
    SharingProcess process(row);
    Random random(1);
    process.fill(random);
    process.refuse_clone(false);
    process.refuse_clone(true);
    process.clone_first();
    process.refuse_clone(true);
    const auto cuts = process.take_cuts();
    check_cuts(row, {cuts.back()}, random);
}

}  // namespace
}  // namespace gpunbd::storage::test
