// What a connection has yet to send: reply headers with the payload that follows each, in order,
// and who is to be told when they have gone. Payload is lent, never copied.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/reply.hpp"
#include "server/connection/reply_sequencer.hpp"
#include "storage/histogram.hpp"

namespace gpunbd::server {

class SendQueue {
 public:
    // Somebody whose payload is being sent.
    class Sender {
     public:
        // The last byte of an item of its own has gone.
        virtual void sent() = 0;

     protected:
        ~Sender() = default;
    };

    // `trace`: how long items waited, not owned; null: not kept.
    explicit SendQueue(storage::Histogram* trace) : trace_(trace) {}

    // A reply header of `header_length` bytes in `header`, then `payload`.
    struct Item {
        protocol::ReplyHeader header;
        std::uint8_t header_length = 0;
        std::size_t payload_length = 0;  // bytes
        const std::byte* payload = nullptr;
        Sender* sender = nullptr;               // told when the item has gone; null: nobody is
        storage::TraceClock::time_point since;  // only with a trace
    };

    // The item to fill in. While another than `reply` (null: none) holds the stream, it waits
    // behind it.
    Item& add(const SequencedReply* reply = nullptr);

    // Who has the stream to itself. By leave() a reply gives it back, held or not, and what waited
    // behind it follows; true: requests may be taken again.
    ReplySequencer& sequencer() { return sequencer_; }
    bool leave(SequencedReply& reply);

    bool empty() const { return first_ == items_.size() && behind_.empty(); }
    bool nothing_to_send() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_ + behind_.size(); }  // items
    std::size_t memory() const {                                                  // bytes
        return (items_.capacity() + behind_.capacity()) * sizeof(Item);
    }
    // Describes the next bytes to send; returns the number of pieces.
    std::size_t gather(std::span<iovec> out) const;
    // So many of them have gone. Senders whose item is complete are told; they may add items.
    void sent(std::size_t bytes);
    // Once it is empty: gives back the memory that a burst has left.
    void give_memory_back();
    // Forgets everything, telling nobody.
    void clear();

 private:
    storage::Histogram* const trace_;
    std::vector<Item> items_;  // [first_, end) are to be sent
    std::size_t first_ = 0;
    std::size_t sent_of_first_ = 0;  // bytes
    std::vector<Item> behind_;       // what others add while one holds the stream
    ReplySequencer sequencer_;
};

}  // namespace gpunbd::server
