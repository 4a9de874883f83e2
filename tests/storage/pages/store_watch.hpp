// Calls a function after each store into ranges of memory, by any thread, so that a test sees the
// memory as if the process had been killed at that instruction.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

namespace gpunbd::storage::test {

class StoreWatch {
 public:
    // Requires single-stepping: x86-64 without thread sanitizer.
    static bool is_possible();

    struct Range {
        void* begin = nullptr;
        std::size_t bytes = 0;
    };
    // The ranges consist of whole memory pages. `instant` is held from before the store until
    // `after` has returned. Only one watch may exist.
    StoreWatch(std::vector<Range> ranges, std::mutex& instant, std::function<void()> after);
    ~StoreWatch();
    StoreWatch(const StoreWatch&) = delete;
    StoreWatch& operator=(const StoreWatch&) = delete;
};

}  // namespace gpunbd::storage::test
