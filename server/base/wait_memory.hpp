// Memory for Asio's state of a wait for a socket or a timer. Asio recycles only memory that is
// requested within a handler, and most waits of a worker start outside of one.
#pragma once

#include <array>
#include <boost/asio/bind_allocator.hpp>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

// For one wait at a time.
struct WaitMemory {
    alignas(std::max_align_t) std::array<std::byte, 256> room;
    bool taken = false;
};

// Larger objects are allocated. The memory is shared, because a wait can outlive the object that
// started it.
template <typename T>
class WaitAllocator {
 public:
    using value_type = T;

    explicit WaitAllocator(std::shared_ptr<WaitMemory> memory) : memory_(std::move(memory)) {}
    template <typename Other>
    explicit(false) WaitAllocator(const WaitAllocator<Other>& other) : memory_(other.memory()) {}

    T* allocate(std::size_t count) {
        if (memory_->taken || count * sizeof(T) > memory_->room.size()) {
            return std::allocator<T>().allocate(count);
        }
        memory_->taken = true;
        return reinterpret_cast<T*>(memory_->room.data());
    }
    void deallocate(T* given, std::size_t count) noexcept {
        if (reinterpret_cast<std::byte*>(given) != memory_->room.data()) {
            return std::allocator<T>().deallocate(given, count);
        }
        GPUNBD_ASSERT(memory_->taken, "the memory of a wait is returned once");
        memory_->taken = false;
    }
    const std::shared_ptr<WaitMemory>& memory() const { return memory_; }
    bool operator==(const WaitAllocator&) const = default;

 private:
    std::shared_ptr<WaitMemory> memory_;
};

template <typename Handler>
auto within(std::shared_ptr<WaitMemory> memory, Handler handler) {
    return boost::asio::bind_allocator(WaitAllocator<std::byte>(std::move(memory)),
                                       std::move(handler));
}

}  // namespace gpunbd::server
