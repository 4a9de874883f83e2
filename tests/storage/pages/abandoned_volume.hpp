// A volume over two devices whose process has ended, and its takeover by another process.
#pragma once

#include "storage/devices/faulty/faulty_device.hpp"
#include "storage/pages/volume.hpp"
#include "tests/storage/memory_device.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/words.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

inline constexpr std::uint64_t left_page = 16 * mib;    // bytes; a slab has four pages
inline constexpr std::uint64_t left_shares[] = {6, 5};  // pages, so each device has two slabs
inline constexpr std::uint64_t left_pages = 11;

inline VolumeOptions left_options(Provision provision) {
    return {.size = left_pages * left_page, .page_size = left_page, .provision = provision};
}

// Two devices on which the volume fits exactly.
struct TwoDevices {
    FaultScript script;
    std::vector<MemoryDevice*> memories;
    std::vector<std::unique_ptr<Device>> own;
    std::vector<Device*> all;

    TwoDevices() {
        for (const std::uint64_t share : left_shares) {
            auto memory = std::make_unique<MemoryDevice>(
                static_cast<std::uint32_t>(own.size()),
                MemoryDevice::Options{.capacity = share * left_page});
            memories.push_back(memory.get());
            own.push_back(make_faulty_device(std::move(memory), script));
            all.push_back(own.back().get());
        }
    }
    ~TwoDevices() {
        for (Device* const each : all) CHECK_FALSE(each->releases().pending());
    }
    TwoDevices(const TwoDevices&) = delete;
    TwoDevices& operator=(const TwoDevices&) = delete;
    std::uint64_t used() const { return memories[0]->used() + memories[1]->used(); }
};

inline auto left_volume(Provision provision, const TwoDevices& devices,
                        const std::shared_ptr<FakeParts>& store) {
    return Volume::create(left_options(provision), devices.all, {},
                          {.name = "left", .wanted = {}, .kept_parts = store});
}

// Every page is mapped and has a different word.
inline CrashImage whole_volume_image(Provision provision) {
    const auto store = std::make_shared<FakeParts>();
    TwoDevices devices;
    const auto volume = checked(left_volume(provision, devices, store));
    for (std::uint64_t page = 0; page != left_pages; ++page) write_word(*volume, page, page + 1);
    return read_image(volume->table_descriptor(), *store, left_page);
}

// Words after the head: the two sizes, two slabs of each device, the entries.
inline void set_word(CrashImage& image, std::uint64_t index, std::uint64_t word) {
    std::uint64_t entries = 0;
    std::memcpy(&entries, &image.table[24], sizeof entries);
    std::memcpy(&image.table[entries + 8 * index], &word, sizeof word);
}
inline void set_entry(CrashImage& image, std::uint64_t page, PageEntry entry) {
    set_word(image, 2 + 2 * 2 + page, entry.word());
}
inline void set_slab(CrashImage& image, std::uint32_t device, std::uint32_t slab, SlabEntry entry) {
    set_word(image, 2 + 2 * device + slab, entry.word());
}
inline void remove_slab(CrashImage& image, std::uint32_t device, std::uint32_t slab) {
    set_slab(image, device, slab, {});
    image.slabs.erase({device, slab});
}
inline void make_slab(CrashImage& image, std::uint32_t device, std::uint32_t slab,
                      std::uint64_t pages) {
    image.slabs[{device, slab}] = {.bytes = pages * left_page,
                                   .pages = std::vector<PageWords>(pages)};
}

// The process died before it had allocated everything: both devices lack their last slab.
inline CrashImage unfinished_volume_image() {
    CrashImage image = whole_volume_image(Provision::full);
    for (const std::uint64_t page : {4, 5, 10}) set_entry(image, page, PageEntry());
    remove_slab(image, 0, 1);
    remove_slab(image, 1, 1);
    return image;
}

using Taken = std::variant<std::unique_ptr<Volume>, std::string>;

// An image that another process takes over.
struct AbandonedVolume {
    std::shared_ptr<FakeParts> store = std::make_shared<FakeParts>();
    OwnedFd table;

    explicit AbandonedVolume(const CrashImage& image)
        : table(restore_image(image, left_page, *store)) {}

    Taken take_over(TwoDevices& devices, bool rests = false,
                    ImportedSlabs* imported = nullptr) const {
        return Volume::take_over(checked(PageTable::open(OwnedFd::copy_of(table.get()))),
                                 devices.all, store->copies(), store, rests, imported);
    }
    CrashImage read() const { return read_image(table, *store, left_page); }
};

inline void check_words(const Volume& volume) {
    for (std::uint64_t page = 0; page != left_pages; ++page) {
        CHECK(read_word(volume, page) == page + 1);
    }
}

inline void check_whole(const AbandonedVolume& left, TwoDevices& devices) {
    const auto volume = checked(left.take_over(devices));
    check_words(*volume);
    CHECK(volume->allocated_bytes() == left_pages * left_page);
    CHECK(devices.used() == left_pages * left_page);
}

}  // namespace gpunbd::storage::test
