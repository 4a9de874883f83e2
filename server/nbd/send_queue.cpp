#include "server/nbd/send_queue.hpp"

#include <algorithm>

namespace gpunbd::server {

namespace {

constexpr std::size_t max_idle_items = 512;  // initial capacity, and that kept when empty
// Bytes. A payload of this length is sent by a call of its own, after another call for its header:
// the header wakes the client, which then reads the payload while it is still in the CPU's cache.
constexpr std::size_t long_payload = 512 << 10;

}  // namespace

SendQueue::Item& SendQueue::add(const Reply* reply) {
    const bool behind = sequencer_.held_by_other(reply);
    // Reuse the space of sent items before growing, so that the size depends on the number of
    // unsent items and not on how long the queue has not been empty.
    if (first_ == items_.size() ||
        (items_.size() == items_.capacity() && first_ >= items_.size() / 2)) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
    std::vector<Item>& to = behind ? behind_ : items_;
    if (to.capacity() == 0) to.reserve(max_idle_items);  // so that a later burst finds it
    Item& item = to.emplace_back();
    if (trace_ != nullptr) item.since = storage::TraceClock::now();
    return item;
}

bool SendQueue::leave(Reply& reply) {
    const bool takes_again = sequencer_.leave(reply);
    if (!behind_.empty() && !sequencer_.held_by_other(nullptr)) {
        items_.insert(items_.end(), behind_.begin(), behind_.end());
        behind_.clear();
    }
    sequencer_.resume_waiting();
    return takes_again;
}

std::size_t SendQueue::gather(std::span<iovec> out) const {
    std::size_t count = 0;
    std::size_t skip = sent_of_first_;
    const auto add_piece = [&](const std::byte* data, std::size_t length) {
        if (skip >= length) {
            skip -= length;
            return;
        }
        // sendmsg() does not write through it.
        out[count++] = {.iov_base = const_cast<std::byte*>(data) + skip, .iov_len = length - skip};
        skip = 0;
    };
    for (std::size_t i = first_; i != items_.size() && count + 2 <= out.size(); ++i) {
        const Item& item = items_[i];
        const bool alone = item.payload_length >= long_payload;
        if (alone && count != 0) break;  // a long payload follows in the next call
        add_piece(item.header.data(), item.header_length);
        if (alone && count != 0) break;  // after its header
        add_piece(item.payload, item.payload_length);
        if (alone) break;
    }
    return count;
}

void SendQueue::sent(std::size_t bytes) {
    sent_of_first_ += bytes;
    while (first_ != items_.size()) {
        const Item& item = items_[first_];
        const std::size_t length = std::size_t{item.header_length} + item.payload_length;
        if (sent_of_first_ < length) return;
        sent_of_first_ -= length;
        read_sent_ += item.read;
        ++first_;
        if (trace_ != nullptr) trace_->record(storage::TraceClock::now() - item.since);
        // The item may move or disappear as soon as its reply adds another.
        if (Reply* const reply = item.reply; reply != nullptr) reply->sent();
    }
}

std::uint64_t SendQueue::read_sent() const {
    if (first_ == items_.size()) return read_sent_;
    const Item& item = items_[first_];
    if (sent_of_first_ <= item.header_length) return read_sent_;
    return read_sent_ + std::min<std::uint64_t>(sent_of_first_ - item.header_length, item.read);
}

void SendQueue::free_memory() {
    if (items_.capacity() > max_idle_items) {
        std::vector<Item>().swap(items_);
        first_ = 0;
    }
    if (behind_.capacity() > max_idle_items) std::vector<Item>().swap(behind_);
}

void SendQueue::clear() {
    items_.clear();
    behind_.clear();
    first_ = 0;
    sent_of_first_ = 0;
    sequencer_.clear();
}

}  // namespace gpunbd::server
