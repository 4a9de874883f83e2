// Memory of whole memory pages that children of fork() do not inherit. Otherwise a fork could
// separate a page from the I/O that is in flight to it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "storage/base/exclude_from_forks.hpp"

namespace gpunbd::storage {

class PrivateMemory {
 public:
    // Reads as zeroes. Throws std::bad_alloc.
    explicit PrivateMemory(std::size_t bytes)
        : data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
          bytes_(bytes) {
        if (data_ == MAP_FAILED) throw std::bad_alloc();
        exclude_from_forks(data_, bytes_);
    }
    ~PrivateMemory() { ::munmap(data_, bytes_); }
    PrivateMemory(const PrivateMemory&) = delete;
    PrivateMemory& operator=(const PrivateMemory&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    std::size_t size() const { return bytes_; }
    bool contains(const std::byte* at, std::size_t bytes) const {
        return at >= data() && at + bytes <= data() + bytes_;
    }

 private:
    void* data_;
    std::size_t bytes_;
};

}  // namespace gpunbd::storage
