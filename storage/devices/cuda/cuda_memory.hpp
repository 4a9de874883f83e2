// RAII owners of CUDA resources: a stream, pinned host memory, device memory. They are move-only,
// know their device and do not throw in destructors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "storage/base/private_memory.hpp"

namespace gpunbd::storage::cuda {

// In bytes, of the current device. Empty: the driver does not say.
std::optional<std::uint64_t> free_device_memory() noexcept;

// A stream that does not synchronise with the default stream. The destructor waits for its work,
// unless the context is lost.
class Stream {
 public:
    enum class Priority { normal, high };

    Stream() = default;
    Stream(int ordinal, Priority priority);  // throws std::runtime_error
    Stream(Stream&& other) noexcept { swap(other); }
    Stream& operator=(Stream&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Stream();

    cudaStream_t get() const { return stream_; }

 private:
    void swap(Stream& other) {
        std::swap(ordinal_, other.ordinal_);
        std::swap(stream_, other.stream_);
    }
    int ordinal_ = 0;
    cudaStream_t stream_ = nullptr;
};

// Zeroed host memory at the same address for all devices of the process, on the given NUMA node
// (-1: any). Freeing it does not wait for copies that use it.
class PinnedMemory {
 public:
    PinnedMemory() = default;
    // Throws std::runtime_error, or std::bad_alloc.
    PinnedMemory(int ordinal, std::size_t bytes, int numa_node);
    PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
    PinnedMemory& operator=(PinnedMemory&& other) noexcept {
        swap(other);
        return *this;
    }
    ~PinnedMemory();

    std::byte* get() const { return memory_; }

 private:
    void swap(PinnedMemory& other) {
        std::swap(ordinal_, other.ordinal_);
        std::swap(pages_, other.pages_);
        std::swap(memory_, other.memory_);
    }
    int ordinal_ = 0;
    std::unique_ptr<PrivateMemory> pages_;  // null: the driver allocated the memory
    std::byte* memory_ = nullptr;
};

// Zeroed device memory. Freeing it waits for the whole device.
class DeviceMemory {
 public:
    DeviceMemory() = default;
    DeviceMemory(int ordinal, std::size_t bytes);  // throws std::runtime_error
    DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept {
        swap(other);
        return *this;
    }
    ~DeviceMemory();

    std::byte* get() const { return memory_; }

 private:
    void swap(DeviceMemory& other) {
        std::swap(ordinal_, other.ordinal_);
        std::swap(memory_, other.memory_);
    }
    int ordinal_ = 0;
    std::byte* memory_ = nullptr;
};

}  // namespace gpunbd::storage::cuda
