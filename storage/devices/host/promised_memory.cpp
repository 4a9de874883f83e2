#include "storage/devices/host/promised_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "storage/assertions/assert.hpp"
#include "storage/base/memory_file.hpp"

namespace gpunbd::storage {

namespace {

// Bits of an entry in /proc/self/pagemap: the page is in swap, or exclusively mapped. The system's
// zero page, which is mapped when memory has only been read, is not exclusive.
constexpr std::uint64_t given_bits = std::uint64_t{1} << 62 | std::uint64_t{1} << 56;

std::uint64_t bytes_given(const OwnedFd& pagemap, const std::byte* at, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::array<std::uint64_t, 4096> entries;
    std::uint64_t next = reinterpret_cast<std::uintptr_t>(at) / page;
    std::uint64_t given = 0;
    for (std::uint64_t left = bytes / page; left != 0;) {
        const std::uint64_t asked = std::min<std::uint64_t>(left, entries.size());
        const ssize_t got = ::pread(pagemap.get(), entries.data(), asked * sizeof entries[0],
                                    static_cast<off_t>(next * sizeof entries[0]));
        if (got <= 0) break;
        const std::uint64_t seen = static_cast<std::uint64_t>(got) / sizeof entries[0];
        given += static_cast<std::uint64_t>(
            std::count_if(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(seen),
                          [](std::uint64_t entry) { return (entry & given_bits) != 0; }));
        next += seen;
        left -= seen;
    }
    return given * page;
}

}  // namespace

PromisedMemory::PromisedMemory() : pagemap_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

bool PromisedMemory::make(Promise& promise, std::uint64_t bytes, std::uint64_t available) {
    const Lock lock(mutex_);
    if (available < owed_ || available - owed_ < bytes) return false;
    add(promise, bytes);
    return true;
}

void PromisedMemory::take_over(Promise& promise, std::uint64_t bytes, std::byte* at,
                               const OwnedFd& file) {
    const Lock lock(mutex_);
    add(promise, bytes);
    promise.at = at;
    if (file) promise.file = file.get();
    check(promise);
}

void PromisedMemory::add(Promise& promise, std::uint64_t bytes) {
    GPUNBD_ASSERT(!promise.is_linked() && promise.owed == 0, "a promise is made once");
    promise.bytes = bytes;
    given_.push_back(promise);
    set_owed(promise, bytes);
}

void PromisedMemory::mapped(Promise& promise, std::byte* at, const OwnedFd& file) {
    const Lock lock(mutex_);
    promise.at = at;
    if (file) promise.file = file.get();
}

void PromisedMemory::given(Promise& promise) {
    const Lock lock(mutex_);
    set_owed(promise, 0);
}

void PromisedMemory::drop(Promise& promise) {
    const Lock lock(mutex_);
    set_owed(promise, 0);
    given_.erase(given_.iterator_to(promise));
}

void PromisedMemory::discarded(Promise& promise, std::uint64_t bytes) {
    const Lock lock(mutex_);
    set_owed(promise, std::min(promise.bytes, promise.owed + bytes));
}

// Also moves the promise to the list that it belongs to.
void PromisedMemory::set_owed(Promise& promise, std::uint64_t bytes) {
    if (promise.owed == 0 && bytes != 0) {
        promises_.splice(promises_.end(), given_, given_.iterator_to(promise));
    } else if (promise.owed != 0 && bytes == 0) {
        given_.splice(given_.end(), promises_, promises_.iterator_to(promise));
    }
    GPUNBD_ASSERT(bytes <= promise.bytes, "a slab is owed at most its own memory");
    GPUNBD_ASSERT(promise.owed <= owed_, "each promise is part of the sum");
    owed_ += bytes - promise.owed;
    promise.owed = bytes;
}

std::uint64_t PromisedMemory::owed() const {
    const Lock lock(mutex_);
    return owed_;
}

std::size_t PromisedMemory::promises() const {
    const Lock lock(mutex_);
    return promises_.size();
}

void PromisedMemory::check_next() {
    const Lock lock(mutex_);
    if (promises_.empty()) return;
    Promise& next = promises_.front();
    promises_.splice(promises_.end(), promises_, promises_.begin());
    check(next);
}

void PromisedMemory::check(Promise& promise) {
    if (promise.at == nullptr || (!promise.file && !pagemap_)) return;
    const std::uint64_t given = promise.file ? bytes_in_memory_file(*promise.file)
                                             : bytes_given(pagemap_, promise.at, promise.bytes);
    set_owed(promise, promise.bytes - std::min(promise.bytes, given));
}

}  // namespace gpunbd::storage
