#include "storage/origins/fetches.hpp"

#include <optional>
#include <vector>

#include "storage/origins/origin_cache.hpp"
#include "tests/storage/origins/memory_origin.hpp"
#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace fetches {
namespace {

constexpr std::uint64_t page_size = 64 * kib;
constexpr std::uint64_t pages = 64;

TEST_CASE("origin: requests of a sequence that are in flight at once are read ahead of together") {
    OriginContents contents(pages * page_size);
    Rig rig({.size = pages * page_size, .page_size = page_size});
    rig.volume->set_source(std::make_unique<OriginCache>(
        *rig.volume, std::make_unique<MemoryOrigin>(contents), OriginCache::Options{}));
    PageBits data(pages);
    for (std::uint64_t page = 0; page != pages; ++page) data.set(page, true);
    BusyPages busy(1);
    const Atomic<std::uint64_t> in_memory(16 * pages);
    Fetches fetches(*rig.volume, data, busy, in_memory);
    const auto read_ahead = [&] {
        std::vector<std::uint64_t> out;
        while (const auto page = fetches.next_in_sequence()) out.push_back(*page);
        return out;
    };
    for (const std::uint64_t page : {10, 11}) fetches.follow(page, 1);
    CHECK(read_ahead() == std::vector<std::uint64_t>{12, 13});
    for (const std::uint64_t page : {14, 15, 16}) fetches.follow(page, 1);
    CHECK(read_ahead() == std::vector<std::uint64_t>{15, 16, 17, 18});
    fetches.follow(17, 1);
    CHECK(read_ahead() == std::vector<std::uint64_t>{19, 20, 21, 22, 23, 24, 25, 26});
}

}  // namespace
}  // namespace fetches
}  // namespace gpunbd::storage::test
