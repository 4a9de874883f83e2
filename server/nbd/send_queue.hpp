#pragma once

#include <sys/uio.h>

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/reply_encoder.hpp"
#include "server/nbd/request_state.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server {

// Orders READs with replies that may not be split: nothing else may be sent between the one header
// and the last byte. It decides which reply has the stream to itself and which READ starts when, so
// that no READ waits for staging memory that is held by READs which wait for the stream.
// Invariants:
// - A whole reply starts only while no reply in chunks is unanswered, since those keep needing
//   memory.
// - While a whole reply needs memory, no further request is taken (takes_requests()). So there is
//   at most one such reply, and those before it can be answered without it.
// - Only the holder of the stream sends between its header and its last byte.
class ReplySequencer {
 public:
    // A whole reply fetches what is absent before it enters. False: there are so many of these that
    // it has to enter at once. end_fetch() follows, unless all replies are forgotten.
    bool begin_fetch() {
        if (fetching_ == most_fetching) return false;
        ++fetching_;
        return true;
    }
    void end_fetch() {
        GPUNBD_ASSERT(fetching_ != 0, "a fetch ends once");
        --fetching_;
    }
    // A whole reply that needs no memory yet enters once requests may be taken again:
    // resume_entering() resumes it.
    void wait_to_enter(Reply& reply) {
        GPUNBD_ASSERT(!reply.waiting_.is_linked(), "a reply waits once");
        entering_.push_back(reply);
    }
    bool can_enter() const { return !entering_.empty() && takes_requests(); }
    void resume_entering() {
        while (can_enter()) {
            Reply& next = entering_.front();
            entering_.pop_front();
            next.resume();
        }
    }
    // Counts the reply as unanswered. begin() follows.
    void enter(Reply& reply, Reply::Form form) {
        GPUNBD_ASSERT(!reply.waiting_.is_linked(), "a reply that is entered does not wait");
        GPUNBD_ASSERT(form == Reply::Form::chunks || takes_requests(),
                      "no request is taken while a whole reply needs memory");
        reply.form_ = form;
        ++unanswered(form);
        if (form == Reply::Form::whole) needs_memory_ = &reply;
    }
    // false: the reply may not start yet, and is resumed to try again.
    bool begin(Reply& reply) {
        if (reply.form_ == Reply::Form::chunks || unanswered(Reply::Form::chunks) == 0) return true;
        wait(reply);
        return false;
    }
    // The reply has all the memory that it needs. true: requests may be taken again.
    bool staged(const Reply& reply) {
        if (needs_memory_ != &reply) return false;
        needs_memory_ = nullptr;
        return true;
    }
    // Gives the stream to a whole reply that takes more than one send. false: another reply has it,
    // or this one might wait for memory while it had it; it is resumed.
    bool hold(Reply& reply);
    // The reply has queued its last byte. true: requests may be taken again. The caller calls
    // resume_waiting() next.
    bool leave(Reply& reply) {
        --unanswered(reply.form_);
        if (holder_ == &reply) holder_ = nullptr;
        reply.waiting_.unlink();
        return staged(reply);
    }
    // Replies that had to wait try again, in order, until one holds the stream.
    void resume_waiting() {
        if (!waiting_.empty()) resume_in_order();
    }

    // True if what `reply` (null: a reply without an order) adds must wait behind the holder.
    bool held_by_other(const Reply* reply) const { return holder_ != nullptr && holder_ != reply; }
    bool takes_requests() const { return needs_memory_ == nullptr; }
    // Forgets all replies without notifying them.
    void clear();

 private:
    std::uint32_t& unanswered(Reply::Form form) {
        return unanswered_[static_cast<std::size_t>(form)];
    }
    void wait(Reply& reply);
    void resume_in_order();

    // An upgrade waits for all of them.
    static constexpr std::uint32_t most_fetching = 32;

    std::uint32_t fetching_ = 0;
    std::array<std::uint32_t, 2> unanswered_{};  // by form
    const Reply* needs_memory_ = nullptr;  // the whole reply that does not have all its memory
    const Reply* holder_ = nullptr;
    using Replies = boost::intrusive::list<
        Reply, boost::intrusive::member_hook<Reply, decltype(Reply::waiting_), &Reply::waiting_>,
        boost::intrusive::constant_time_size<false>>;
    Replies entering_;
    Replies waiting_;
    std::size_t to_resume_ = 0;  // the first ones of waiting_
    bool resuming_ = false;
};

// The queue of replies of a connection: headers, each followed by its payload, in order. Payload is
// lent and never copied. The queue notifies the request when its payload has been sent.
class SendQueue {
 public:
    // `trace`: records how long items waited; not owned, may be null.
    explicit SendQueue(storage::Histogram* trace) : trace_(trace) {}

    // A reply header of `header_length` bytes in `header`, then `payload`.
    struct Item {
        protocol::ReplyHeader header;
        std::uint8_t header_length = 0;
        std::uint32_t payload_length = 0;  // bytes
        std::uint32_t read = 0;            // bytes of a READ that it answers, holes included
        const std::byte* payload = nullptr;
        Reply* reply = nullptr;                 // notified when the item has been sent; may be null
        storage::TraceClock::time_point since;  // only with a trace
    };

    // Returns the item to fill in. It waits while a reply other than `reply` (null: none) holds the
    // stream.
    Item& add(const Reply* reply = nullptr);

    // leave(): the reply is complete and gives the stream back if it holds it, and what waited
    // behind it follows. true: requests may be taken again.
    ReplySequencer& sequencer() { return sequencer_; }
    bool leave(Reply& reply);

    bool empty() const { return first_ == items_.size(); }
    bool nothing_to_send() const { return first_ == end_of_sendable(); }
    std::size_t size() const { return items_.size() - first_; }  // items
    // The client sends requests but does not read its replies, so no more requests are accepted.
    bool full() const { return size() > max_unsent; }
    std::size_t memory() const { return items_.capacity() * sizeof(Item); }  // bytes
    // Describes the next bytes to send, at most `limit` of payload. Returns the number of pieces.
    std::size_t gather(std::span<iovec> out, std::size_t limit) const;
    // `bytes` of them have been sent. Notifies replies whose item is complete; these may add items.
    void sent(std::size_t bytes);
    // Bytes of READs that have been sent since the beginning.
    std::uint64_t read_sent() const { return read_sent_; }
    // Of an empty queue: frees the memory that a burst has left.
    void free_memory() {
        if (items_.capacity() > max_idle_items) [[unlikely]]
            free_burst();
    }
    // Forgets everything without notifying replies.
    void clear();

 private:
    static constexpr std::size_t max_unsent = 4096;  // items
    static constexpr std::size_t max_idle_items =
        512;  // initial capacity, and that kept when empty

    std::size_t end_of_sendable() const {
        GPUNBD_ASSERT(behind_ <= items_.size() - first_,
                      "what waits behind the holder of the stream is not sent");
        return items_.size() - behind_;
    }
    void free_burst();

    storage::Histogram* const trace_;
    // [first_, end) are not sent. The last behind_ of them wait until the reply that holds the
    // stream leaves.
    std::vector<Item> items_;
    std::size_t first_ = 0;
    std::size_t behind_ = 0;
    std::size_t sent_of_first_ = 0;    // bytes
    std::uint64_t read_sent_ = 0;      // bytes
    std::uint64_t read_of_first_ = 0;  // bytes of read_sent_ that belong to the first item
    ReplySequencer sequencer_;
};

}  // namespace gpunbd::server
