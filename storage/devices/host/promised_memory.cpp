#include "storage/devices/host/promised_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "storage/devices/host/memory_file.hpp"

namespace gpunbd::storage {

namespace {

// Of an entry in /proc/self/pagemap: the page is in swap, or mapped by nobody else. The system's
// page of zeroes, which is mapped where memory has only been read, is everybody's.
constexpr std::uint64_t given_bits = std::uint64_t{1} << 62 | std::uint64_t{1} << 56;

std::uint64_t bytes_given(int pagemap, const std::byte* at, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::array<std::uint64_t, 4096> entries;
    std::uint64_t next = reinterpret_cast<std::uintptr_t>(at) / page;
    std::uint64_t given = 0;
    for (std::uint64_t left = bytes / page; left != 0;) {
        const std::uint64_t asked = std::min<std::uint64_t>(left, entries.size());
        const ssize_t got = ::pread(pagemap, entries.data(), asked * sizeof entries[0],
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

PromisedMemory::~PromisedMemory() {
    if (pagemap_ >= 0) ::close(pagemap_);
}

bool PromisedMemory::make(Promise& promise, std::uint64_t bytes, std::uint64_t available) {
    const std::lock_guard lock(mutex_);
    if (available < owed_ || available - owed_ < bytes) return false;
    add(promise, bytes);
    return true;
}

void PromisedMemory::take_over(Promise& promise, std::uint64_t bytes, std::byte* at,
                               int descriptor) {
    const std::lock_guard lock(mutex_);
    add(promise, bytes);
    promise.at = at;
    promise.descriptor = descriptor;
    look_at(promise);
}

void PromisedMemory::add(Promise& promise, std::uint64_t bytes) {
    promise.bytes = bytes;
    given_.push_back(promise);
    set_owed(promise, bytes);
}

void PromisedMemory::mapped(Promise& promise, std::byte* at, int descriptor) {
    const std::lock_guard lock(mutex_);
    promise.at = at;
    promise.descriptor = descriptor;
}

void PromisedMemory::given(Promise& promise) {
    const std::lock_guard lock(mutex_);
    set_owed(promise, 0);
}

void PromisedMemory::drop(Promise& promise) {
    const std::lock_guard lock(mutex_);
    set_owed(promise, 0);
    given_.erase(given_.iterator_to(promise));
}

void PromisedMemory::discarded(Promise& promise, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    set_owed(promise, std::min(promise.bytes, promise.owed + bytes));
}

// Moves it to the list that it belongs to.
void PromisedMemory::set_owed(Promise& promise, std::uint64_t bytes) {
    if (promise.owed == 0 && bytes != 0) {
        promises_.splice(promises_.end(), given_, given_.iterator_to(promise));
    } else if (promise.owed != 0 && bytes == 0) {
        given_.splice(given_.end(), promises_, promises_.iterator_to(promise));
    }
    owed_ += bytes - promise.owed;
    promise.owed = bytes;
}

std::uint64_t PromisedMemory::owed() const {
    const std::lock_guard lock(mutex_);
    return owed_;
}

std::size_t PromisedMemory::promises() const {
    const std::lock_guard lock(mutex_);
    return promises_.size();
}

void PromisedMemory::look() {
    const std::lock_guard lock(mutex_);
    if (promises_.empty()) return;
    Promise& next = promises_.front();
    promises_.splice(promises_.end(), promises_, promises_.begin());
    look_at(next);
}

void PromisedMemory::look_at(Promise& promise) {
    const bool is_file = promise.descriptor >= 0;
    if (promise.at == nullptr || (!is_file && pagemap_ < 0)) return;
    const std::uint64_t given = is_file ? bytes_in_memory_file(promise.descriptor)
                                        : bytes_given(pagemap_, promise.at, promise.bytes);
    set_owed(promise, promise.bytes - std::min(promise.bytes, given));
}

}  // namespace gpunbd::storage
