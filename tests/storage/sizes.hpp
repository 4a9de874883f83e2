// Sizes in bytes.
#pragma once

#include <cstdint>

namespace gpunbd::storage::test {

inline constexpr std::uint64_t kib = 1 << 10;
inline constexpr std::uint64_t mib = 1 << 20;
inline constexpr std::uint64_t gib = 1 << 30;

}  // namespace gpunbd::storage::test
