// The memory that page pools may allocate as slabs on one device. Lowering the limit below what is
// in use releases nothing, but no pool gets another slab.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

// All functions may be called from any thread. All sizes are in bytes.
class SlabBudget {
 public:
    static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

    explicit SlabBudget(std::uint64_t limit = unlimited) : limit_(limit) {}

    // Returns false, without effect, if the limit would be exceeded.
    bool take(std::uint64_t bytes) {
        std::uint64_t used = used_.load();
        do {
            if (bytes > limit_.load() || used > limit_.load() - bytes) return false;
        } while (!used_.compare_exchange_weak(used, used + bytes));
        return true;
    }
    // For memory that is allocated already.
    void add(std::uint64_t bytes) { used_.fetch_add(bytes); }
    void give_back(std::uint64_t bytes) {
        const std::uint64_t used = used_.fetch_sub(bytes);
        GPUNBD_ASSERT(bytes <= used, "memory was counted before it is given back");
    }

    std::uint64_t used() const { return used_.load(); }
    std::uint64_t limit() const { return limit_.load(); }
    void set_limit(std::uint64_t bytes) { limit_.store(bytes); }

 private:
    std::atomic<std::uint64_t> used_{0};
    std::atomic<std::uint64_t> limit_;
};

}  // namespace gpunbd::storage
