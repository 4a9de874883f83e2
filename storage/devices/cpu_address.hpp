// The CPU address of a slab. An adopted slab may get one while other threads use the slab; then it
// does not change any more.
#pragma once

#include <atomic>
#include <cstddef>

namespace gpunbd::storage {

class CpuAddress {
 public:
    CpuAddress() = default;
    // Implicit on purpose.
    CpuAddress(std::byte* address) : address_(address) {}
    CpuAddress(const CpuAddress& other) : address_(static_cast<std::byte*>(other)) {}
    CpuAddress& operator=(const CpuAddress& other) {
        address_.store(other, std::memory_order_release);
        return *this;
    }

    // Null: the CPU cannot address the slab, or not yet.
    operator std::byte*() const { return address_.load(std::memory_order_acquire); }

 private:
    std::atomic<std::byte*> address_{nullptr};
};

}  // namespace gpunbd::storage
