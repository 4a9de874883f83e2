// A counter that one thread writes and any thread reads, without locks. Writing costs a load and a
// store.
#pragma once

#include <atomic>
#include <cstdint>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

class Counter {
 public:
    Counter() = default;
    explicit Counter(std::uint64_t value) : value_(value) {}

    void add(std::uint64_t by = 1) {
        value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    void subtract(std::uint64_t by = 1) {
        GPUNBD_ASSERT(by <= value(), "a counter is never negative");
        value_.store(value() - by, std::memory_order_relaxed);
    }
    void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
    std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
    std::atomic<std::uint64_t> value_{0};
};

}  // namespace gpunbd::storage
