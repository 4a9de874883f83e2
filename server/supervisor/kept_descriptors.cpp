#include "server/supervisor/kept_descriptors.hpp"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t huge_page = 2 << 20;  // bytes

// An unaligned mapping uses small pages, and the kernel (6.1) then locks no part of a huge page.
void* map_aligned(int descriptor, std::size_t bytes) {
    const std::size_t room = bytes + huge_page;
    void* const start = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return MAP_FAILED;
    auto* const base = static_cast<std::byte*>(start);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(base) % huge_page;
    void* const mapped =
        ::mmap(base + before, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, 0);
    const int error = errno;
    if (mapped == MAP_FAILED) {
        ::munmap(base, room);
        errno = error;
        return MAP_FAILED;
    }
    const auto whole_pages = [](std::size_t n) { return (n + 4095) / 4096 * 4096; };
    if (before != 0) ::munmap(base, before);
    ::munmap(base + before + whole_pages(bytes), room - before - whole_pages(bytes));
    return mapped;
}

constexpr int first_handed = 3;  // SD_LISTEN_FDS_START

// Returns true if both refer to one open file description; false if the kernel does not support the
// comparison.
bool same_open_file(int one, int other) {
    const pid_t self = ::getpid();
    return ::syscall(SYS_kcmp, self, self, KCMP_FILE, one, other) == 0;
}

}  // namespace

LockedContents::LockedContents(int descriptor) {
    struct stat file {};
    if (::fcntl(descriptor, F_GET_SEALS) < 0 || ::fstat(descriptor, &file) != 0) return;
    if (file.st_size == 0) return;
    const auto bytes = static_cast<std::size_t>(file.st_size);
    void* const start = map_aligned(descriptor, bytes);
    if (start == MAP_FAILED) {
        error_ = errno;
        return;
    }
    start_ = start;
    bytes_ = bytes;
}

LockedContents::~LockedContents() {
    if (start_ != nullptr) ::munmap(start_, bytes_);
}

KeptDescriptors::KeptDescriptors(std::size_t capacity, bool hold)
    : capacity_(capacity), hold_(hold) {
    entries_.reserve(capacity);
}

KeptDescriptors::Answer KeptDescriptors::keep(std::string_view name, OwnedFd fd) {
    GPUNBD_ASSERT(is_descriptor_name(name), "descriptors are stored under valid names");
    const bool there = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& each) {
        return each.name() == name && same_open_file(each.fd.get(), fd.get());
    });
    if (there) return Answer::there_already;
    if (entries_.size() == capacity_) return Answer::full;
    if (names_length_ + name.size() + 1 > max_all_names) return Answer::names_full;
    LockedContents memory = hold_ ? LockedContents(fd.get()) : LockedContents();
    if (memory.error() != 0) return Answer::not_held;
    Entry entry{.fd = std::move(fd),
                .length = static_cast<std::uint8_t>(name.size()),
                .text = {},
                .memory = std::move(memory)};
    name.copy(entry.text.data(), entry.text.size());
    entries_.push_back(std::move(entry));
    names_length_ += name.size() + 1;
    return Answer::kept;
}

std::size_t KeptDescriptors::remove(std::string_view name) {
    const auto gone = std::stable_partition(entries_.begin(), entries_.end(),
                                            [&](const Entry& each) { return each.name() != name; });
    const auto count = static_cast<std::size_t>(std::distance(gone, entries_.end()));
    entries_.erase(gone, entries_.end());
    GPUNBD_ASSERT(names_length_ >= count * (name.size() + 1), "all stored names are counted");
    names_length_ -= count * (name.size() + 1);
    return count;
}

void KeptDescriptors::keep_first(std::size_t count) {
    while (entries_.size() > count) {
        names_length_ -= std::size_t{entries_.back().length} + 1;
        entries_.pop_back();
    }
}

// The descriptors are moved in ascending order, so no extra descriptor is needed.
bool KeptDescriptors::hand_over() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.fd.get() < b.fd.get(); });
    int place = first_handed;
    for (Entry& each : entries_) {
        GPUNBD_ASSERT(each.fd.get() >= place, "no descriptor overwrites one that moves later");
        if (each.fd.get() == place) {
            if (::fcntl(place, F_SETFD, 0) != 0) return false;
        } else {
            if (::dup2(each.fd.get(), place) != place) return false;
            each.fd = OwnedFd(place);
        }
        ++place;
    }
    return true;
}

std::string KeptDescriptors::joined_names() const {
    std::string out;
    out.reserve(names_length_);
    for (const Entry& each : entries_) {
        if (!out.empty()) out += ':';
        out += each.name();
    }
    return out;
}

}  // namespace gpunbd::server
