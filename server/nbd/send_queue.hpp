// The queue of replies of a connection: headers, each followed by its payload, in order. Payload is
// lent and never copied. The queue notifies the request when its payload has been sent.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/reply_encoder.hpp"
#include "server/nbd/reply_sequencer.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server {

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
    // Describes the next bytes to send. Returns the number of pieces.
    std::size_t gather(std::span<iovec> out) const;
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
