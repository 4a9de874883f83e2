// The same sequence on every machine and standard library.
#pragma once

#include <cstdint>
#include <random>

namespace gpunbd::storage::test {

class Random {
 public:
    explicit Random(std::uint32_t seed) : engine_(seed) {}
    // 0 .. bound-1
    std::uint32_t below(std::uint32_t bound) {
        return static_cast<std::uint32_t>(engine_() % bound);
    }
    std::uint32_t between(std::uint32_t first, std::uint32_t last) {
        return first + below(last - first + 1);
    }
    bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
    std::mt19937 engine_;  // its sequence is standardized, unlike distributions
};

}  // namespace gpunbd::storage::test
