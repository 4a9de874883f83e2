// A hole that wants a page for which the device has to be asked. The request goes to the
// provisioner of the page pool and comes back to the worker that made it, which meanwhile does
// other things.
#pragma once

#include <cstdint>

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

// A first-in-first-out list of requests through PageRequest::next.
class PageRequests {
 public:
    bool empty() const { return head_ == nullptr; }
    void push(PageRequest& request) {
        request.next = nullptr;
        (head_ == nullptr ? head_ : tail_->next) = &request;
        tail_ = &request;
    }
    PageRequest* pop() {
        PageRequest* const request = head_;
        if (request != nullptr) head_ = request->next;
        return request;
    }

 private:
    PageRequest* head_ = nullptr;
    PageRequest* tail_ = nullptr;
};

}  // namespace gpunbd::storage
