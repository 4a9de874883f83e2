// A first-in-first-out list of things that are somebody else's, through a member of theirs: `next`.
#pragma once

namespace gpunbd::storage {

template <typename Link>
class ChainedQueue {
 public:
    bool empty() const { return head_ == nullptr; }
    Link* front() const { return head_; }
    void push(Link& link) {
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
