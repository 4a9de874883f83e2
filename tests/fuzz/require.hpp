// What has to hold whatever the input: libFuzzer keeps the input of a program that aborts.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gpunbd::fuzz {

inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: broken: %s\n", what);
    std::abort();
}

}  // namespace gpunbd::fuzz
