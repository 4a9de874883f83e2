// The atomic types of the page map. A test that explores interleavings
// (tests/storage/interleaving) compiles its users with types that call a scheduler.
#pragma once

#include <atomic>

namespace gpunbd {

template <typename T>
using Atomic = std::atomic<T>;
template <typename T>
using AtomicRef = std::atomic_ref<T>;

}  // namespace gpunbd
