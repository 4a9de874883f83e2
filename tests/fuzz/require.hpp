// An assertion of a fuzz target. libFuzzer saves the input when the program aborts.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gpunbd::fuzz {

inline void require(bool holds, const char* invariant) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: violated: %s\n", invariant);
    std::abort();
}

}  // namespace gpunbd::fuzz
