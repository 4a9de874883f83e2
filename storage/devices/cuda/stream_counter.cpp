#include "storage/devices/cuda/stream_counter.hpp"

#include <atomic>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage::cuda {

namespace {

void move_all(CopyQueue& from, CopyQueue& to) {
    while (Copy* copy = from.pop()) to.push(*copy);
}

}  // namespace

StreamCounter::StreamCounter(int ordinal, Stream::Priority priority, std::uint32_t* word)
    : stream_(ordinal, priority), word_(word) {}

void StreamCounter::close() {
    GPUNBD_ASSERT(!full(), "a group has ended before its number is used again");
    GPUNBD_ASSERT(groups_[next_ % depth].empty(),
                  "the copies of a group that has ended were returned");
    groups_[next_ % depth] = open_;
    open_ = CopyQueue{};
    ++next_;
}

bool StreamCounter::take_ended(CopyQueue& ended) {
    if (first_ == next_) return false;
    const std::uint32_t reached = std::atomic_ref(*word_).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(reached - (first_ + 1)) < 0) return false;
    move_all(groups_[first_ % depth], ended);
    ++first_;
    return true;
}

void StreamCounter::take_all(CopyQueue& ended) {
    for (; first_ != next_; ++first_) move_all(groups_[first_ % depth], ended);
    move_all(open_, ended);
}

const Copy* StreamCounter::oldest() const {
    return first_ == next_ ? nullptr : groups_[first_ % depth].front();
}

}  // namespace gpunbd::storage::cuda
