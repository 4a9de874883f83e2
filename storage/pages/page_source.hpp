#pragma once

#include <cstdint>
#include <string>

#include "storage/base/counter.hpp"
#include "storage/devices/page_completions.hpp"

namespace gpunbd::storage {

// Where the pages of a volume come from that are not in its memory: see Volume::set_source().
class PageSource {
 public:
    struct Counters {
        Counter fetched;     // pages that a client needed
        Counter prefetched;  // pages that were read ahead of a client
        Counter evicted;     // pages that made room
        Counter errors;      // pages that could not be read
    };

    virtual ~PageSource() = default;

    // A path.
    virtual const std::string& name() const = 0;
    virtual const Counters& counters() const = 0;

    // Whether the page has contents. Otherwise it reads as zeroes. Any thread; does not block.
    virtual bool has(std::uint64_t page) const = 0;
    // Maps the page `request.number` with its contents, and completes the request; io_error: they
    // cannot be read. The page may be gone again when the waiter looks. Any thread; does not block.
    virtual void fetch(PageRequest& request) noexcept = 0;
    // The page is not in memory any more. Any thread.
    virtual void drop(std::uint64_t page) = 0;
};

}  // namespace gpunbd::storage
