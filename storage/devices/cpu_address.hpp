// Where the CPU addresses a slab. Of one that was taken over it may become known while others use
// the slab; it never changes then.
#pragma once

#include <atomic>
#include <cstddef>

namespace gpunbd::storage {

class CpuAddress {
 public:
    CpuAddress() = default;
    // Implicit: it is an address.
    CpuAddress(std::byte* address) : address_(address) {}
    CpuAddress(const CpuAddress& other) : address_(other.get()) {}
    CpuAddress& operator=(const CpuAddress& other) {
        address_.store(other.get(), std::memory_order_release);
        return *this;
    }

    // Null: the CPU cannot, or not yet.
    std::byte* get() const { return address_.load(std::memory_order_acquire); }
    operator std::byte*() const { return get(); }

 private:
    std::atomic<std::byte*> address_{nullptr};
};

}  // namespace gpunbd::storage
