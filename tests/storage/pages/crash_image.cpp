#include "tests/storage/pages/crash_image.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "storage/base/memory_file.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

namespace {

std::uint64_t bytes_of(const OwnedFd& file) {
    struct stat facts {};
    REQUIRE(::fstat(file.get(), &facts) == 0);
    return static_cast<std::uint64_t>(facts.st_size);
}

void read_at(const OwnedFd& file, void* to, std::size_t bytes, std::uint64_t at) {
    REQUIRE(::pread(file.get(), to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes));
}

void write_words(const OwnedFd& file, const PageWords& words, std::uint64_t page,
                 std::uint64_t size) {
    const auto places = places_in(size);
    for (std::size_t i = 0; i != places.size(); ++i) {
        if (words[i] == 0) continue;
        const auto at = static_cast<off_t>(page * size + places[i]);
        REQUIRE(::pwrite(file.get(), &words[i], sizeof words[i], at) == sizeof words[i]);
    }
}

}  // namespace

std::vector<std::byte> bytes_in(const OwnedFd& file) {
    std::vector<std::byte> bytes(bytes_of(file));
    read_at(file, bytes.data(), bytes.size(), 0);
    return bytes;
}

std::vector<std::byte> table_in(const OwnedFd& file) {
    off_t end = 0;
    for (off_t data = 0; (data = ::lseek(file.get(), end, SEEK_DATA)) >= 0;) {
        end = ::lseek(file.get(), data, SEEK_HOLE);
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(end));
    read_at(file, bytes.data(), bytes.size(), 0);
    return bytes;
}

OwnedFd file_with_table(const std::vector<std::byte>& bytes) {
    std::uint64_t size = 0;  // as in the header
    std::memcpy(&size, &bytes[16], sizeof size);
    return file_with(bytes, size);
}

OwnedFd file_with(const std::vector<std::byte>& bytes, std::uint64_t size) {
    OwnedFd file = make_memory_file(std::max<std::uint64_t>(size, bytes.size()));
    REQUIRE(file);
    REQUIRE(::pwrite(file.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    return file;
}

std::array<std::uint64_t, 3> places_in(std::uint64_t page_size) {
    return {0, page_size / 2, page_size - 8};
}

bool FakeParts::keep(std::uint32_t device, std::uint32_t slab, const OwnedFd& descriptor) noexcept {
    tell();
    {
        const std::lock_guard lock(mutex_);
        if (refuses_) return false;
        OwnedFd copy = OwnedFd::copy_of(descriptor);
        if (!copy) return false;
        try {
            const bool is_new = kept_.emplace(Number{device, slab}, std::move(copy)).second;
            CHECK(is_new);  // otherwise a descriptor would lose its name
        } catch (const std::bad_alloc&) {
            return false;
        }
        if (keeps_too_late_) return false;
    }
    tell();
    return true;
}

void FakeParts::drop(std::uint32_t device, std::uint32_t slab) noexcept {
    tell();
    {
        const std::lock_guard lock(mutex_);
        const auto found = kept_.find({device, slab});
        if (found == kept_.end()) return;
        kept_.erase(found);
    }
    tell();
}

std::vector<FakeParts::Number> FakeParts::numbers() const {
    std::vector<Number> all;
    each([&](Number number, const OwnedFd&) { all.push_back(number); });
    return all;
}

Volume::Descriptors FakeParts::copies() const {
    Volume::Descriptors all;
    each([&](Number number, const OwnedFd& descriptor) {
        OwnedFd copy = OwnedFd::copy_of(descriptor);
        REQUIRE(copy);
        all[number.first].emplace(number.second, std::move(copy));
    });
    return all;
}

void FakeParts::each(const std::function<void(Number, const OwnedFd&)>& call) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, descriptor] : kept_) call(number, descriptor);
}

void FakeParts::refuse(bool is_refusing) {
    const std::lock_guard lock(mutex_);
    refuses_ = is_refusing;
}

void FakeParts::keep_too_late(bool is_late) {
    const std::lock_guard lock(mutex_);
    keeps_too_late_ = is_late;
}

CrashImage read_image(const OwnedFd& table, const FakeParts& store, std::uint64_t page_size) {
    CrashImage image;
    image.table = table_in(table);
    const auto places = places_in(page_size);
    store.each([&](FakeParts::Number number, const OwnedFd& descriptor) {
        CrashImage::OfSlab& slab = image.slabs[number];
        slab.bytes = bytes_of(descriptor);
        slab.pages.resize(slab.bytes / page_size);
        for (std::uint64_t page = 0; page != slab.pages.size(); ++page) {
            for (std::size_t i = 0; i != places.size(); ++i) {
                std::uint64_t& word = slab.pages[page][i];
                read_at(descriptor, &word, sizeof word, page * page_size + places[i]);
            }
        }
    });
    return image;
}

OwnedFd restore_image(const CrashImage& image, std::uint64_t page_size, FakeParts& store) {
    for (const auto& [number, slab] : image.slabs) {
        const OwnedFd file = make_memory_file(slab.bytes);
        REQUIRE(file);
        for (std::uint64_t page = 0; page != slab.pages.size(); ++page) {
            write_words(file, slab.pages[page], page, page_size);
        }
        REQUIRE(store.keep(number.first, number.second, file));
    }
    return image.table.empty() ? OwnedFd() : file_with_table(image.table);
}

}  // namespace gpunbd::storage::test
