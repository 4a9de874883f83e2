// Maps pages, and writes and reads words of them.
#pragma once

#include "storage/pages/volume.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

inline std::atomic_ref<std::uint64_t> word_of(const PageRef& page) {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(page.address()));
}

inline PageRef map_page(Volume& volume, std::uint64_t page) {
    PageRef ref;
    REQUIRE(volume.map(page, ref) == Status::ok);
    return ref;
}

// Maps the page if it is a hole.
inline void write_word(Volume& volume, std::uint64_t page, std::uint64_t value) {
    word_of(map_page(volume, page)) = value;
}

// Zero: the page is a hole, or reads so.
inline std::uint64_t read_word(const Volume& volume, std::uint64_t page) {
    const PageRef ref = volume.find(page);
    return ref.hole() ? 0 : word_of(ref).load();
}

// The first, the middle and the last word get the value.
inline void stamp(std::byte* page, std::uint64_t page_size, std::uint64_t value) {
    for (const std::uint64_t at : {std::uint64_t{0}, page_size / 2, page_size - 8}) {
        std::memcpy(page + at, &value, sizeof value);
    }
}

inline bool holds(const std::byte* page, std::uint64_t page_size, std::uint64_t value) {
    for (const std::uint64_t at : {std::uint64_t{0}, page_size / 2, page_size - 8}) {
        if (std::memcmp(page + at, &value, sizeof value) != 0) return false;
    }
    return true;
}

}  // namespace gpunbd::storage::test
