// Kills a kept volume, or several that share pages, at every step: after each store into a table or
// into their slab directory, and before and after each call of a device or of kept parts. Then
// takes over the remaining state and compares each volume with its model.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "storage/base/memory_file.hpp"
#include "storage/migration/page_mover.hpp"
#include "storage/pages/volume.hpp"
#include "tests/sanitized.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/latch_device.hpp"
#include "tests/storage/pages/page_waiter.hpp"
#include "tests/storage/pages/store_watch.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

struct PageModel {
    bool is_mapped = false;
    PageWords words{};
};

// The permitted contents: the pages after the last operation, and a page or the size that is being
// changed.
struct Expected {
    enum class How { wholly, word_by_word };
    std::vector<PageModel> pages;
    std::optional<std::uint64_t> changing;
    PageModel changed;
    How how = How::wholly;
    std::optional<std::vector<PageModel>> resized = {};

    bool allows(std::uint64_t page, const PageModel& found) const {
        const PageModel& known = pages[page];
        if (changing != page) return is(found, known);
        if (how == How::wholly) return is(found, known) || is(found, changed);
        for (std::size_t i = 0; i != found.words.size(); ++i) {
            if (found.words[i] != known.words[i] && found.words[i] != changed.words[i])
                return false;
        }
        return found.is_mapped;
    }
    bool allows(const std::vector<PageModel>& found) const {
        if (resized && found.size() == resized->size()) {
            return std::ranges::equal(found, *resized, is);
        }
        bool all = found.size() == pages.size();
        for (std::size_t page = 0; all && page != pages.size(); ++page) {
            all = allows(page, found[page]);
        }
        return all;
    }
    static bool is(const PageModel& one, const PageModel& other) {
        return one.is_mapped == other.is_mapped && one.words == other.words;
    }
};

std::uint64_t* word_at(const PageRef& page, std::uint64_t place) {
    return reinterpret_cast<std::uint64_t*>(page.cpu() + place);
}

PageModel look_at_page(const Volume& volume, std::uint64_t page) {
    const PageRef ref = volume.find(page);
    PageModel found;
    if (ref.hole()) return found;
    found.is_mapped = true;
    const auto places = places_in(volume.page_size());
    for (std::size_t i = 0; i != places.size(); ++i) {
        found.words[i] = std::atomic_ref(*word_at(ref, places[i])).load();
    }
    return found;
}

// Returns the address and size at which this process has mapped the first part of a memory file,
// without the bytes before `from`.
StoreWatch::Range mapping_of(const OwnedFd& file, std::uint64_t from = 0) {
    struct stat facts {};
    REQUIRE(::fstat(file.get(), &facts) == 0);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::string access;
        std::string offset;
        std::string device;
        std::uint64_t inode = 0;
        std::istringstream(line) >> std::hex >> begin >> dash >> end >> access >> offset >>
            device >> std::dec >> inode;
        if (inode != facts.st_ino || !contains(line, "memfd:")) continue;
        return {reinterpret_cast<void*>(begin + from), end - begin - from};
    }
    FAIL("the file is not mapped");
    return {};
}

StoreWatch::Range entries_of(const OwnedFd& table) {
    std::uint64_t entries = 0;  // the header contains their offset
    REQUIRE(::pread(table.get(), &entries, sizeof entries, 24) == sizeof entries);
    return mapping_of(table, entries);
}

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
    // Pages of spill memory, on another device. While a slow client reads old pages, the pools need
    // more than the export, so this is more. 0: none, and pages do not move.
    std::uint64_t spill = 0;
    Provision provision = Provision::thin;
    bool discards = true;
    bool spills_later = false;  // the volumes are made without spill memory
    bool alone = false;         // one volume without clones, on devices without a spare byte

    std::uint32_t pages() const {
        std::uint64_t all = 0;
        for (const std::uint64_t share : shares) all += share;
        return static_cast<std::uint32_t>(all);
    }
    std::size_t devices() const { return shares.size() + (spill != 0 ? 1 : 0); }
    MemoryDevice::Options device(std::uint32_t number) const {
        MemoryDevice::Options options{.discards = discards};
        const std::uint64_t share = number < shares.size() ? shares[number] : spill;
        if (alone) options.capacity = share * page_size;
        return options;
    }
};

struct SharedDevices {
    std::vector<std::unique_ptr<LatchDevice>> all;
    std::vector<Device*> layout;
    SlabBudget budget;
    std::vector<Spill> spills;

    SharedDevices(const SharedCase& row, const std::function<void()>& cut) {
        for (std::uint32_t number = 0; number != row.devices(); ++number) {
            all.push_back(std::make_unique<LatchDevice>(number, row.device(number), cut));
            if (number < row.shares.size()) {
                layout.push_back(all.back().get());
            } else {
                spills.push_back({.home = 0, .device = all.back().get(), .budget = &budget});
            }
        }
    }
};

using SharedExpected = std::map<VolumeNumber, Expected>;

std::vector<StoreWatch::Range> watched_ranges(const SharedStore& store) {
    std::vector<StoreWatch::Range> ranges;
    ranges.reserve(store.tables.size() + 1);
    for (const auto& [unused, table] : store.tables) ranges.push_back(entries_of(table));
    if (store.directory) ranges.push_back(mapping_of(store.directory));
    return ranges;
}

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
        volumes_[number] = checked(
            Volume::create({.size = row.pages() * row.page_size - (row.alone ? 5 : 0),
                            .page_size = row.page_size,
                            .stripe_size = row.stripe * row.page_size,
                            .provision = row.provision},
                           devices_.layout, {}, {.name = "cut", .kept_parts = parts_for(number)},
                           row.spills_later ? std::vector<Spill>() : devices_.spills));
        for (const auto& device : devices_.all) mover_.open(*device);
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
        switch (random.below(row_.spill != 0 ? 11 : 9)) {
            case 0:
            case 1:
            case 2:
                return write(number, page, random);
            case 3:
                return unmap(number, page);
            case 4:
            case 5:
                if (row_.alone) return unmap(number, page);
                if (volumes_.size() < 4) return clone(number);
                [[fallthrough]];
            case 6:
                if (row_.alone) return clear(number, page);
                if (volumes_.size() > 1) end(number);
                return;
            case 7:
                if (row_.alone) return let_go(random);
                return resize(number, random.between(1, 2 * row_.pages()));
            case 9:
                return move(number, page, 0, devices_.layout.size());
            case 10:
                return move(number, page, devices_.layout.size(), 0);
            default:
                if (held_.size() == 3) held_.clear();
                hold(number, page);
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
        const auto kept_parts = parts_for(clone);
        kept_parts->refuses_table = table;
        members_.at(number)->refuses_directory = !table;
        const std::string why = failure_of(
            volumes_[number]->clone(KeepOptions{.name = "refused", .kept_parts = kept_parts}));
        members_.at(number)->refuses_directory = false;
        CHECK(why == (table ? "the supervisor does not keep its page table"
                            : "the supervisor does not keep its slab directory"));
        CHECK(volumes_[number]->contents().shared == shared);
        members_.erase(clone);
    }
    void fill(Random& random) {
        for (std::uint64_t page = 0; page != row_.pages(); ++page) {
            write(volumes_.begin()->first, page, random);
        }
    }
    void clone_first() { clone(volumes_.begin()->first); }

 private:
    void clear(VolumeNumber number, std::uint64_t page) {
        const PageRef ref = volumes_[number]->find(page);
        if (!ref.hole()) store_words(number, page, ref, {});
    }
    void let_go(Random& random) {
        if (held_.empty()) return;
        std::swap(held_[random.below(static_cast<std::uint32_t>(held_.size()))], held_.back());
        held_.pop_back();
    }
    void hold(VolumeNumber number, std::uint64_t page) {
        if (PageRef ref = volumes_[number]->find(page); !ref.hole()) {
            held_.push_back(std::move(ref));
        }
    }

    VolumeNumber any_volume(Random& random) {
        auto at = volumes_.begin();
        std::advance(at, random.below(static_cast<std::uint32_t>(volumes_.size())));
        return at->first;
    }

    std::shared_ptr<MemberParts> parts_for(VolumeNumber number) {
        auto kept_parts = std::make_shared<MemberParts>(store_, [this, number](OwnedFd table) {
            const std::lock_guard lock(instant_);
            store_.tables[number] = std::move(table);
            if (cloned_) expected_[number] = expected_.at(*cloned_);
            take_cut();
        });
        members_[number] = kept_parts;
        return kept_parts;
    }

    void watch() {
        if (watch_ && row_.alone) return;
        watch_.reset();
        if (!StoreWatch::is_possible()) return;
        watch_.emplace(watched_ranges(store_), instant_, [this] { take_cut(); });
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
        store_words(number, page, ref, {stamp_, stamp_ << 20, stamp_ << 40});
    }
    void store_words(VolumeNumber number, std::uint64_t page, const PageRef& ref,
                     const PageWords& words) {
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
        const auto kept_parts = parts_for(number);
        cloned_ = source;
        volumes_[number] = checked(
            volumes_.at(source)->clone(KeepOptions{.name = "clone", .kept_parts = kept_parts}));
        cloned_.reset();
        cut_here();
    }
    void end(VolumeNumber number) {
        watch();
        {
            const std::lock_guard lock(instant_);
            store_.tables.erase(number);
            expected_.erase(number);
            members_.at(number)->is_forgotten = true;
            take_cut();
        }
        watch_.reset();  // the table is unmapped
        volumes_.erase(number);
        members_.erase(number);
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
    std::map<VolumeNumber, std::shared_ptr<MemberParts>> members_;
    std::map<VolumeNumber, std::unique_ptr<Volume>> volumes_;
    std::optional<StoreWatch> watch_;
    std::vector<PageRef> held_;
    TestWaiter asking_;
    PageMover mover_{{.chunk_size = 1 << 20, .slots = 2, .pinned = 1 << 20}};
};

// The next process.
class NextSharing {
 public:
    // `cuts`: gets what remains if this process is killed during the takeover.
    NextSharing(const SharedCase& row, const SharedImage& image,
                std::vector<SharedImage>* cuts = nullptr)
        : row_(row), cuts_(cuts), devices_(row, [this] { cut_here(); }) {
        KeptVolumes contents;
        std::vector<VolumeNumber> numbers;
        for (const auto& [number, bytes] : image.tables) {
            store_.tables[number] = file_with_table(bytes);
            members_[number] = std::make_shared<MemberParts>(store_, [](OwnedFd) {});
            contents.members.push_back(
                {checked(PageTable::open(OwnedFd::copy_of(store_.tables[number].get()))),
                 members_[number]});
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
            contents.directory = std::make_shared<SharedDirectory>(
                checked(SharedDirectory::open(OwnedFd::copy_of(store_.directory.get()))));
        }
        const bool has_spills = !row.spills_later || (contents.directory != nullptr &&
                                                      !contents.directory->added().empty());
        std::optional<StoreWatch> watch;
        if (cuts_ != nullptr && StoreWatch::is_possible()) {
            watch.emplace(watched_ranges(store_), instant_, [this] { take_cut(); });
        }
        is_watched_ = cuts_ != nullptr;
        auto taken =
            checked(Volume::take_over(std::move(contents), devices_.layout, false, nullptr,
                                      has_spills ? devices_.spills : std::vector<Spill>()));
        cut_here();
        is_watched_ = false;
        for (std::size_t i = 0; i != numbers.size(); ++i)
            volumes_[numbers[i]] = std::move(taken[i]);
        if (watch) volumes_.begin()->second->quiesce();  // as in ~SharingProcess
    }
    NextSharing(const NextSharing&) = delete;
    NextSharing& operator=(const NextSharing&) = delete;

    void look() {
        for (const auto& [number, volume] : volumes_) {
            std::set<std::uint64_t> addresses;  // of its pages
            for (std::uint64_t page = 0; page != volume->pages(); ++page) {
                models_[number].push_back(look_at_page(*volume, page));
                if (!models_[number].back().is_mapped) continue;
                REQUIRE(addresses.insert(volume->find(page).address()).second);
            }
            REQUIRE(volume->mapped_bytes() == addresses.size() * row_.page_size);
            REQUIRE(volume->retired_bytes() == 0);
        }
        if (row_.provision == Provision::full) check_all_is_taken();
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
            if (!row_.alone && random.one_in(3)) {
                REQUIRE(volume->resize((volume->pages() + 2) * row_.page_size) == "");
                models_[number].resize(volume->pages());
            }
            for (std::uint64_t page = 0; page != volume->pages(); ++page) {
                if (row_.alone && random.one_in(4)) {
                    volume->unmap(page);
                    models_[number][page] = {};
                }
                // A volume alone gets all of its pages, for which there is exactly enough memory.
                const bool has_to = row_.alone && !models_[number][page].is_mapped;
                if (!has_to && random.one_in(3)) continue;
                ++stamp;
                map_and_write(number, page, {~stamp, stamp, ~stamp});
            }
        }
        if (row_.alone) check_all_is_taken();
        check_models();
        while (volumes_.size() > 1) {
            auto at = volumes_.begin();
            std::advance(at, random.below(static_cast<std::uint32_t>(volumes_.size())));
            members_.at(at->first)->is_forgotten = true;
            volumes_.erase(at);
            check_models();
        }
        Volume& last = *volumes_.begin()->second;
        for (std::uint64_t page = 0; row_.alone && page != last.pages(); ++page) {
            if (random.one_in(2)) last.unmap(page);
        }
    }
    // Checks that exactly the slabs in the directory are kept.
    void end() {
        const auto& [number, last] = *volumes_.begin();
        last->quiesce();  // no slab is allocated ahead meanwhile
        const std::uint64_t allocated = last->allocated_bytes();
        const OwnedFd kept_table = OwnedFd::copy_of(store_.tables.at(number).get());
        std::uint64_t used = 0;
        for (const auto& device : devices_.all) used += device->memory.used();
        REQUIRE(used == allocated);
        volumes_.clear();
        for (const auto& device : devices_.all) REQUIRE(device->memory.used() == 0);
        std::vector<FakeParts::Number> in_directory;
        const PageTable kept = checked(PageTable::open(OwnedFd::copy_of(kept_table.get())));
        for (std::uint32_t device = 0; device != row_.devices(); ++device) {
            SlabDirectory slabs;
            if (device < kept.shape().devices.size()) slabs = kept.slabs(device);
            std::optional<SharedDirectory> shared;
            if (store_.directory) {
                shared.emplace(
                    checked(SharedDirectory::open(OwnedFd::copy_of(store_.directory.get()))));
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
    void map_and_write(VolumeNumber number, std::uint64_t page, const PageWords& words) {
        PageRef ref = map_page(*volumes_[number], page);
        REQUIRE(look_at_page(*volumes_[number], page).words ==
                models_[number][page].words);  // a hole reads as zeroes
        const auto places = places_in(row_.page_size);
        for (std::size_t i = 0; i != places.size(); ++i) {
            std::memcpy(ref.cpu() + places[i], &words[i], sizeof words[i]);
        }
        models_[number][page] = {.is_mapped = true, .words = words};
    }
    void check_all_is_taken() const {
        if (!row_.alone || row_.spill != 0) return;
        REQUIRE(volumes_.at(0)->allocated_bytes() == row_.pages() * row_.page_size);
        for (const auto& device : devices_.all) REQUIRE(device->available() == 0);
    }
    void cut_here() {
        const std::lock_guard lock(instant_);
        take_cut();
    }
    void take_cut() {
        if (!is_watched_) return;
        SharedImage now = read_shared_image(store_, row_.page_size);
        if (cuts_->empty() || cuts_->back() != now) cuts_->push_back(std::move(now));
    }

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
    std::vector<SharedImage>* const cuts_;
    std::mutex instant_;
    std::atomic<bool> is_watched_{false};
    SharedStore store_{[this] { cut_here(); }};
    SharedDevices devices_;
    std::map<VolumeNumber, std::shared_ptr<MemberParts>> members_;
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

int steps_of(const SharedCase& row) {
    return row.alone && gpunbd::test::is_sanitized ? row.steps / 2 : row.steps;
}

void kill_at_each_step(const SharedCase& row) {
    CAPTURE(row.name);
    CAPTURE(row.discards);
    CAPTURE(static_cast<int>(row.provision));
    SharingProcess process(row);
    Random random(row.pages());
    for (int step = 0; step != steps_of(row); ++step) {
        CAPTURE(step);
        process.step(random);
        check_cuts(row, process.take_cuts(), random);
    }
}

// The next process is killed while it takes over, and a third one follows. For some cuts only.
void kill_again(const SharedCase& row) {
    CAPTURE(row.name);
    std::vector<SharedCut> cuts;
    Random random(row.pages());
    {
        SharingProcess process(row);
        for (int step = 0; step != steps_of(row); ++step) {
            process.step(random);
            for (SharedCut& cut : process.take_cuts()) {
                if (random.one_in(8)) cuts.push_back(std::move(cut));
            }
        }
    }
    for (const SharedCut& cut : cuts) {
        std::vector<SharedImage> images;
        { const NextSharing killed(row, cut.image, &images); }
        std::vector<SharedCut> again;
        for (SharedImage& image : images) again.push_back({std::move(image), cut.expected});
        check_cuts(row, again, random);
    }
}

void kill_one_at_each_step(std::vector<SharedCase> rows) {
    if (!StoreWatch::is_possible()) {
        MESSAGE("skipped here: cuts behind each store; those at calls are made");
    }
    for (SharedCase& row : rows) {
        row.alone = true;
        for (const Provision provision : {Provision::thin, Provision::full}) {
            for (const bool discards : {true, false}) {
                row.provision = provision;
                row.discards = discards;
                kill_at_each_step(row);
            }
        }
    }
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (small pages)") {
    kill_one_at_each_step(
        {{"a slab", 4 * kib, {24}, 0, 60}, {"linear over two", 4 * kib, {5, 9}, 0, 60}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (small slabs)") {
    kill_one_at_each_step(
        {{"with a rest", 16 * mib, {11}, 0, 80}, {"striped over two", 16 * mib, {9, 8}, 3, 80}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (large pages)") {
    kill_one_at_each_step(
        {{"one device", 64 * mib, {6}, 0, 100}, {"striped over two", 64 * mib, {3, 3}, 1, 100}});
}

TEST_CASE("kept volume: killed at any step, it has all acknowledged contents (pages move)") {
    kill_one_at_each_step({{"small pages", 4 * kib, {12}, 0, 120, 40},
                           {"few pages in a slab", 16 * mib, {5}, 0, 60, 40}});
}

TEST_CASE("kept volume: killed during a takeover, it has all acknowledged contents") {
    SharedCase rows[] = {{"small pages", 4 * kib, {24}, 0, 40},
                         {"few pages in a slab", 16 * mib, {9, 8}, 3, 40},
                         {"a page is a slab", 64 * mib, {6}, 0, 60},
                         {"pages move", 4 * kib, {12}, 0, 60, 40}};
    for (SharedCase& row : rows) {
        row.alone = true;
        for (const Provision provision : {Provision::thin, Provision::full}) {
            row.provision = provision;
            row.discards = provision == Provision::thin;
            kill_again(row);
            row.discards = false;
            kill_again(row);
        }
    }
}

TEST_CASE("kept clones: killed at any step, all volumes have their acknowledged contents") {
    kill_at_each_step({"small pages", 4 * kib, {6}, 0, 30});
    kill_at_each_step({"full", 4 * kib, {5}, 0, 25, 0, Provision::full});
    kill_at_each_step({"two devices", 16 * mib, {3, 2}, 0, 20, 0, Provision::thin, false});
    kill_at_each_step({"striped, full", 16 * mib, {4, 4}, 1, 15, 0, Provision::full, false});
}

TEST_CASE("kept clones: killed at any step while pages move, all volumes have their contents") {
    kill_at_each_step({"small pages", 4 * kib, {5}, 0, 30, 1});
    kill_at_each_step({"a page is a slab", 64 * mib, {3}, 0, 15, 1, Provision::thin, false});
    kill_at_each_step({"added later", 4 * kib, {5}, 0, 30, 1, Provision::thin, true, true});
    kill_at_each_step({"added later, full", 4 * kib, {5}, 0, 30, 1, Provision::full, true, true});
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
