#include "server/supervisor/locked_contents.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

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

}  // namespace gpunbd::server
