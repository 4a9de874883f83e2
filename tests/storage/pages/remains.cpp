#include "tests/storage/pages/remains.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/devices/host/memory_file.hpp"

namespace gpunbd::storage::test {

namespace {

std::uint64_t bytes_of(int descriptor) {
    struct stat facts {};
    REQUIRE(::fstat(descriptor, &facts) == 0);
    return static_cast<std::uint64_t>(facts.st_size);
}

void read_at(int descriptor, void* to, std::size_t bytes, std::uint64_t at) {
    REQUIRE(::pread(descriptor, to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes));
}

int file_with(const void* data, std::size_t bytes) {
    const int descriptor = make_memory_file(bytes);
    REQUIRE(descriptor >= 0);
    REQUIRE(::pwrite(descriptor, data, bytes, 0) == static_cast<ssize_t>(bytes));
    return descriptor;
}

void write_words(int descriptor, const PageWords& words, std::uint64_t page, std::uint64_t size) {
    const auto places = places_in(size);
    for (std::size_t i = 0; i != places.size(); ++i) {
        if (words[i] == 0) continue;
        const auto at = static_cast<off_t>(page * size + places[i]);
        REQUIRE(::pwrite(descriptor, &words[i], sizeof words[i], at) == sizeof words[i]);
    }
}

}  // namespace

std::array<std::uint64_t, 3> places_in(std::uint64_t page_size) {
    return {0, page_size / 2, page_size - 8};
}

PlayedKeeper::~PlayedKeeper() {
    for (const auto& [number, descriptor] : kept_) ::close(descriptor);
}

bool PlayedKeeper::keep(std::uint32_t device, std::uint32_t slab, int descriptor) noexcept {
    tell();
    {
        const std::lock_guard lock(mutex_);
        if (refuses_) return false;
        const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return false;
        const bool is_new = kept_.emplace(Number{device, slab}, copy).second;
        CHECK(is_new);  // else one of them has no name any more
    }
    tell();
    return true;
}

void PlayedKeeper::forget(std::uint32_t device, std::uint32_t slab) noexcept {
    tell();
    {
        const std::lock_guard lock(mutex_);
        const auto found = kept_.find({device, slab});
        if (found == kept_.end()) return;
        ::close(found->second);
        kept_.erase(found);
    }
    tell();
}

std::vector<PlayedKeeper::Number> PlayedKeeper::numbers() const {
    std::vector<Number> all;
    each([&](Number number, int) { all.push_back(number); });
    return all;
}

std::vector<std::vector<int>> PlayedKeeper::copies(std::size_t devices) const {
    std::vector<std::vector<int>> all(devices);
    each([&](Number number, int descriptor) {
        std::vector<int>& of_device = all.at(number.first);
        if (of_device.size() <= number.second) of_device.resize(number.second + 1, -1);
        of_device[number.second] = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        REQUIRE(of_device[number.second] >= 0);
    });
    return all;
}

void PlayedKeeper::each(const std::function<void(Number, int)>& call) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, descriptor] : kept_) call(number, descriptor);
}

void PlayedKeeper::refuse(bool is_refusing) {
    const std::lock_guard lock(mutex_);
    refuses_ = is_refusing;
}

void close_all(std::vector<std::vector<int>>& descriptors) {
    for (std::vector<int>& of_device : descriptors) {
        for (int& descriptor : of_device) {
            if (descriptor >= 0) ::close(descriptor);
            descriptor = -1;
        }
    }
}

Remains look_at_remains(int table, const PlayedKeeper& store, std::uint64_t page_size) {
    Remains remains;
    remains.table.resize(bytes_of(table));
    read_at(table, remains.table.data(), remains.table.size(), 0);
    const auto places = places_in(page_size);
    store.each([&](PlayedKeeper::Number number, int descriptor) {
        Remains::OfSlab& slab = remains.slabs[number];
        slab.bytes = bytes_of(descriptor);
        slab.pages.resize(slab.bytes / page_size);
        for (std::uint64_t page = 0; page != slab.pages.size(); ++page) {
            for (std::size_t i = 0; i != places.size(); ++i) {
                std::uint64_t& word = slab.pages[page][i];
                read_at(descriptor, &word, sizeof word, page * page_size + places[i]);
            }
        }
    });
    return remains;
}

int lay_out_again(const Remains& remains, std::uint64_t page_size, PlayedKeeper& store) {
    for (const auto& [number, slab] : remains.slabs) {
        const int descriptor = make_memory_file(slab.bytes);
        REQUIRE(descriptor >= 0);
        for (std::uint64_t page = 0; page != slab.pages.size(); ++page) {
            write_words(descriptor, slab.pages[page], page, page_size);
        }
        REQUIRE(store.keep(number.first, number.second, descriptor));
        ::close(descriptor);
    }
    return file_with(remains.table.data(), remains.table.size());
}

}  // namespace gpunbd::storage::test
