// The contents of a kept volume that are permitted after its process was killed at any step.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "storage/pages/volume.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/pages/store_watch.hpp"

namespace gpunbd::storage::test {

struct PageModel {
    bool is_mapped = false;
    PageWords words{};
};

// The permitted contents: the pages after the last operation, and a page or the size that is being
// changed.
struct Expected {
    enum class How { wholly, word_by_word };
    std::vector<PageModel> pages;
    std::optional<std::uint64_t> changing;
    PageModel changed;
    How how = How::wholly;
    std::optional<std::vector<PageModel>> resized = {};

    bool allows(std::uint64_t page, const PageModel& found) const {
        const PageModel& known = pages[page];
        if (changing != page) return is(found, known);
        if (how == How::wholly) return is(found, known) || is(found, changed);
        for (std::size_t i = 0; i != found.words.size(); ++i) {
            if (found.words[i] != known.words[i] && found.words[i] != changed.words[i])
                return false;
        }
        return found.is_mapped;
    }
    bool allows(const std::vector<PageModel>& found) const {
        if (resized && found.size() == resized->size()) {
            return std::ranges::equal(found, *resized, is);
        }
        bool all = found.size() == pages.size();
        for (std::size_t page = 0; all && page != pages.size(); ++page) {
            all = allows(page, found[page]);
        }
        return all;
    }
    static bool is(const PageModel& one, const PageModel& other) {
        return one.is_mapped == other.is_mapped && one.words == other.words;
    }
};

inline std::uint64_t* word_at(const PageRef& page, std::uint64_t place) {
    return reinterpret_cast<std::uint64_t*>(page.cpu() + place);
}

inline PageModel look_at_page(const Volume& volume, std::uint64_t page) {
    const PageRef ref = volume.find(page);
    PageModel found;
    if (ref.hole()) return found;
    found.is_mapped = true;
    const auto places = places_in(volume.page_size());
    for (std::size_t i = 0; i != places.size(); ++i) {
        found.words[i] = std::atomic_ref(*word_at(ref, places[i])).load();
    }
    return found;
}

// Returns the address and size at which this process has mapped the first part of a memory file,
// without the bytes before `from`.
inline StoreWatch::Range mapping_of(const OwnedFd& file, std::uint64_t from = 0) {
    struct stat facts {};
    REQUIRE(::fstat(file.get(), &facts) == 0);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::string access;
        std::string offset;
        std::string device;
        std::uint64_t inode = 0;
        std::istringstream(line) >> std::hex >> begin >> dash >> end >> access >> offset >>
            device >> std::dec >> inode;
        if (inode != facts.st_ino || line.find("memfd:") == std::string::npos) continue;
        return {reinterpret_cast<void*>(begin + from), end - begin - from};
    }
    FAIL("the file is not mapped");
    return {};
}

inline StoreWatch::Range entries_of(const OwnedFd& table) {
    std::uint64_t entries = 0;  // the header contains their offset
    REQUIRE(::pread(table.get(), &entries, sizeof entries, 24) == sizeof entries);
    return mapping_of(table, entries);
}

}  // namespace gpunbd::storage::test
