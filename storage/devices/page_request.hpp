// A request to map a page for a hole, or to copy a shared page, when the device has to be called.
// The provisioner of the page pool serves it and returns it to its worker, which does other work
// meanwhile.
#pragma once

#include <cstdint>

#include "storage/base/chained_queue.hpp"
#include "storage/base/status.hpp"
#include "storage/devices/page_entry.hpp"

namespace gpunbd::storage {

class PageCompletions;

class PageWaiter {
 public:
    // Called on the worker's thread from PageCompletions::deliver().
    virtual void page_ready() = 0;

 protected:
    ~PageWaiter() = default;
};

// It must not move while it is in progress.
struct PageRequest {
    bool in_progress = false;    // used by the worker
    Status status = Status::ok;  // of the last request; ok: look at the entry again
    bool copies = false;         // a shared page
    std::uint64_t number = 0;    // the page number in the volume
    EntrySlot slot;
    PageWaiter* waiter = nullptr;
    PageCompletions* completions = nullptr;
    PageRequest* next = nullptr;  // used by the current owner
};

using PageRequests = ChainedQueue<PageRequest>;

}  // namespace gpunbd::storage
