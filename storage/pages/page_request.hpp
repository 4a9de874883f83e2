// A hole that wants a page for which the device has to be asked. The request goes to the
// provisioner of the page pool and comes back to the worker that made it, which meanwhile does
// other things.
#pragma once

#include <cstdint>

#include "storage/chained_queue.hpp"
#include "storage/pages/page_entry.hpp"
#include "storage/status.hpp"

namespace gpunbd::storage {

class PageReturns;

class PageAsker {
 public:
    // On the worker's thread, from PageReturns::deliver().
    virtual void page_answered() = 0;

 protected:
    ~PageAsker() = default;
};

// It stays where it is while it is under way.
struct PageRequest {
    bool under_way = false;      // the worker's
    Status status = Status::ok;  // of the last one; ok: the hole has had a page since
    std::uint64_t number = 0;    // of the page in its volume
    EntrySlot slot;
    PageAsker* asker = nullptr;
    PageReturns* returns = nullptr;
    PageRequest* next = nullptr;  // of whoever has it now
};

using PageRequests = ChainedQueue<PageRequest>;

}  // namespace gpunbd::storage
