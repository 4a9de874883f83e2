// A page pool without a volume, with its own slab directory.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/pages/page_pool.hpp"

namespace gpunbd::storage::test {

struct DirectoryWords {
    std::vector<std::uint64_t> words;
};

class TestPool : private DirectoryWords, public PagePool {
 public:
    TestPool(Device& device, std::uint64_t page_size, std::uint64_t pages, Provision provision)
        : DirectoryWords{std::vector<std::uint64_t>(
              slabs_for(pages, slab_pages_for(pages, page_size, false)))},
          PagePool(device,
                   {.page_size = page_size,
                    .pages = pages,
                    .provision = provision,
                    .slab_pages = slab_pages_for(pages, page_size, false),
                    .directory = {words.data(), static_cast<std::uint32_t>(words.size())}}) {}

    // Takes a page that reads as zeroes and maps it, so that retire() can unmap it.
    Status take(PageIndex& page) {
        std::uint64_t word = 0;
        PageRef mapped;
        const Status status = map(0, EntrySlot(word), mapped);
        if (status == Status::ok) page = mapped.index();
        return status;
    }
};

inline void retire(PagePool& pool, PageIndex page, std::uint64_t number = 0) {
    std::uint64_t word = PageEntry::mapped(0, page).word();
    pool.unmap(number, EntrySlot(word));
}

}  // namespace gpunbd::storage::test
