// Calls something after each store into some memory, whichever thread makes it: a test looks at
// what is there as if the process had been killed at that instruction.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

namespace gpunbd::storage::test {

class StoreWatch {
 public:
    // Where single instructions can be stepped over: x86-64, and no thread sanitizer.
    static bool is_possible();

    // Whole memory pages. `instant` is held from before the store until `after` has returned. Only
    // one watch at a time.
    StoreWatch(void* begin, std::size_t bytes, std::mutex& instant, std::function<void()> after);
    ~StoreWatch();
    StoreWatch(const StoreWatch&) = delete;
    StoreWatch& operator=(const StoreWatch&) = delete;
};

}  // namespace gpunbd::storage::test
