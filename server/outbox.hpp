// What a connection has yet to send: reply headers with the payload that follows each, in order,
// and who is to be told when they have gone. Payload is lent, never copied.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <vector>

#include "protocol/reply.hpp"
#include "storage/histogram.hpp"

namespace gpunbd::server {

class Operation;

class Outbox {
 public:
    // `trace`: how long items waited, not owned; null: not kept.
    explicit Outbox(storage::Histogram* trace) : trace_(trace) {}

    // A reply header of `header_length` bytes in `header`, then `payload`. Where `operation` is not
    // null its sent() is called once the last byte has gone.
    struct Item {
        protocol::ReplyHeader header;
        std::uint8_t header_length = 0;
        std::size_t payload_length = 0;  // bytes
        const std::byte* payload = nullptr;
        Operation* operation = nullptr;
        storage::TraceClock::time_point since;  // only with a trace
    };

    // The item to fill in. `sender` is who sends: while another operation holds the stream, the
    // item waits behind it.
    Item& add(const Operation* sender);
    // Nothing but the holder's items is sent until it lets go: a READ that is answered in one piece
    // is one header and then all of its data. false: another holds the stream, or it was not
    // `allowed`; `holder` is resumed later.
    bool hold(Operation& holder, bool allowed = true);
    // It has put in all of its answer, held or not, and is not resumed any more. Those who were
    // refused are.
    void let_go(const Operation& holder);

    bool empty() const { return first_ == items_.size() && behind_.empty(); }
    bool nothing_to_send() const { return first_ == items_.size(); }
    std::size_t size() const { return items_.size() - first_ + behind_.size(); }  // items
    // Describes the next bytes to send; returns the number of pieces.
    std::size_t gather(std::span<iovec> out) const;
    // So many of them have gone. Operations whose item is complete are told; they may add items.
    void sent(std::size_t bytes);
    // Forgets everything, telling nobody.
    void clear();

 private:
    storage::Histogram* const trace_;
    std::vector<Item> items_;  // [first_, end) are to be sent; grows to the queue depth, then stays
    std::size_t first_ = 0;
    std::size_t sent_of_first_ = 0;  // bytes
    std::vector<Item> behind_;
    const Operation* holder_ = nullptr;
    std::vector<Operation*> refused_;
    std::size_t to_resume_ = 0;  // of them, the first
    bool resuming_ = false;
};

}  // namespace gpunbd::server
