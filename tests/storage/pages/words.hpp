// Writes and reads the first word of a page.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>

#include "storage/pages/volume.hpp"

namespace gpunbd::storage::test {

inline std::atomic_ref<std::uint64_t> word_of(const PageRef& page) {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(page.address()));
}

// Maps the page if it is a hole.
inline void write_word(Volume& volume, std::uint64_t page, std::uint64_t value) {
    PageRef ref;
    REQUIRE(volume.map(page, ref) == Status::ok);
    word_of(ref) = value;
}

// Zero: the page is a hole, or reads so.
inline std::uint64_t read_word(const Volume& volume, std::uint64_t page) {
    const PageRef ref = volume.find(page);
    return ref.hole() ? 0 : word_of(ref).load();
}

}  // namespace gpunbd::storage::test
