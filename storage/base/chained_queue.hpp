// A first-in-first-out queue of elements that it does not own, linked through their member `next`.
#pragma once

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

template <typename Link>
class ChainedQueue {
 public:
    bool empty() const { return head_ == nullptr; }
    Link* front() const { return head_; }
    void push(Link& link) {
        GPUNBD_ASSERT(head_ == nullptr || tail_ != &link, "an element is in a queue once");
        link.next = nullptr;
        (head_ == nullptr ? head_ : tail_->next) = &link;
        tail_ = &link;
    }
    Link* pop() {
        Link* const link = head_;
        if (link != nullptr) head_ = link->next;
        return link;
    }

 private:
    Link* head_ = nullptr;
    Link* tail_ = nullptr;
};

}  // namespace gpunbd::storage
