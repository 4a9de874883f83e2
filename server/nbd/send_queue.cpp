#include "server/nbd/send_queue.hpp"

#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

// Bytes. A payload of this length is sent by a call of its own, after another call for its header:
// the header wakes the client, which then reads the payload while it is still in the CPU's cache.
constexpr std::size_t long_payload = 512 << 10;

}  // namespace

bool ReplySequencer::hold(Reply& reply) {
    GPUNBD_ASSERT(reply.form_ == Reply::Form::whole, "only a whole reply holds the stream");
    const bool may = needs_memory_ != &reply || unanswered(Reply::Form::whole) == 1;
    if (holder_ == &reply || (holder_ == nullptr && may)) {
        holder_ = &reply;
        return true;
    }
    wait(reply);
    return false;
}

void ReplySequencer::resume_in_order() {
    to_resume_ = waiting_.size();
    if (resuming_) return;  // called from resume() below: that loop continues
    resuming_ = true;
    while (to_resume_ != 0 && !waiting_.empty() && holder_ == nullptr) {
        --to_resume_;
        Reply& next = waiting_.front();
        waiting_.pop_front();
        next.resume();  // if it has to wait again, it is appended
    }
    resuming_ = false;
}

void ReplySequencer::wait(Reply& reply) {
    if (!reply.waiting_.is_linked()) waiting_.push_back(reply);
}

void ReplySequencer::clear() {
    fetching_ = 0;
    unanswered_ = {};
    needs_memory_ = holder_ = nullptr;
    entering_.clear();
    waiting_.clear();
}

SendQueue::Item& SendQueue::add(const Reply* reply) {
    // Reuse the space of sent items before growing, so that the size depends on the number of
    // unsent items and not on how long the queue has not been empty.
    if (nothing_to_send() || (items_.size() == items_.capacity() && first_ >= items_.size() / 2)) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
    if (items_.capacity() == 0) items_.reserve(max_idle_items);  // so that a later burst finds it
    const bool behind = sequencer_.held_by_other(reply);
    const std::size_t place = behind ? items_.size() : end_of_sendable();
    GPUNBD_ASSERT(first_ <= place, "a reply is queued behind what has been sent");
    Item& item = *items_.emplace(items_.begin() + static_cast<std::ptrdiff_t>(place));
    if (behind) ++behind_;
    if (trace_ != nullptr) item.since = storage::TraceClock::now();
    return item;
}

bool SendQueue::leave(Reply& reply) {
    const bool takes_again = sequencer_.leave(reply);
    if (!sequencer_.held_by_other(nullptr)) behind_ = 0;
    sequencer_.resume_waiting();
    return takes_again;
}

std::size_t SendQueue::gather(std::span<iovec> out, std::size_t limit) const {
    GPUNBD_ASSERT(limit != 0, "a send has bytes");
    GPUNBD_ASSERT(out.size() >= 2, "a header and its payload fit into one send");
    std::size_t count = 0;
    std::size_t skip = sent_of_first_;
    for (std::size_t i = first_; i != end_of_sendable() && count + 2 <= out.size(); ++i) {
        const Item& item = items_[i];
        const bool alone = item.payload_length >= long_payload;
        if (alone && count != 0) break;  // a long payload follows in the next call
        // sendmsg() does not write through the pieces.
        if (skip < item.header_length) {
            out[count++] = {.iov_base = const_cast<std::byte*>(item.header.data()) + skip,
                            .iov_len = item.header_length - skip};
            if (alone) break;  // the payload follows its header in the next call
        }
        skip -= std::min<std::size_t>(skip, item.header_length);
        if (item.payload_length != 0) {
            const std::size_t length = std::min(item.payload_length - skip, limit);
            out[count++] = {.iov_base = const_cast<std::byte*>(item.payload) + skip,
                            .iov_len = length};
            limit -= length;
        }
        skip = 0;
        if (alone || limit == 0) break;
    }
    GPUNBD_ASSERT(count != 0 || nothing_to_send(),
                  "an unsent item has bytes, since a send of none looks like the end");
    return count;
}

void SendQueue::sent(std::size_t bytes) {
    sent_of_first_ += bytes;
    while (!nothing_to_send()) {
        const Item& item = items_[first_];
        const std::size_t length = std::size_t{item.header_length} + item.payload_length;
        if (sent_of_first_ < length) {
            if (sent_of_first_ <= item.header_length) return;
            const auto read =
                std::min<std::uint64_t>(sent_of_first_ - item.header_length, item.read);
            GPUNBD_ASSERT(read >= read_of_first_, "the bytes of a READ are counted once");
            read_sent_ += read - std::exchange(read_of_first_, read);
            return;
        }
        sent_of_first_ -= length;
        read_sent_ += item.read - std::exchange(read_of_first_, 0);
        ++first_;
        if (trace_ != nullptr) trace_->record(storage::TraceClock::now() - item.since);
        // The item may move or disappear as soon as its reply adds another.
        if (Reply* const reply = item.reply; reply != nullptr) reply->sent();
    }
    GPUNBD_ASSERT(sent_of_first_ == 0, "no more bytes are sent than were queued");
}

void SendQueue::free_burst() {
    GPUNBD_ASSERT(empty(), "the memory of queued items stays");
    std::vector<Item>().swap(items_);
    first_ = 0;
}

void SendQueue::clear() {
    items_.clear();
    first_ = 0;
    behind_ = 0;
    sent_of_first_ = 0;
    read_of_first_ = 0;
    sequencer_.clear();
}

}  // namespace gpunbd::server
