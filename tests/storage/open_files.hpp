// The number of descriptors that this process has open, to detect leaks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace gpunbd::storage::test {

inline std::size_t open_files() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace gpunbd::storage::test
