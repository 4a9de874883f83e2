#include "server/outbox.hpp"

#include <algorithm>

#include "server/operation.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t most_sent = 1024;  // items that have gone and are still kept
// Bytes. A payload so long leaves by a call of its own, and its header before it by another: the
// header wakes the client, which then reads what comes while the CPU's cache still has it.
constexpr std::size_t long_payload = 512 << 10;

}  // namespace

Outbox::Item& Outbox::add(const Operation* sender) {
    const bool behind = holder_ != nullptr && holder_ != sender;
    if (first_ == items_.size() || first_ >= most_sent) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
    Item& item = (behind ? behind_ : items_).emplace_back();
    if (trace_ != nullptr) item.since = storage::TraceClock::now();
    return item;
}

bool Outbox::hold(Operation& holder, bool allowed) {
    if (holder_ == &holder || (holder_ == nullptr && allowed)) {
        holder_ = &holder;
        return true;
    }
    if (std::find(refused_.begin(), refused_.end(), &holder) == refused_.end()) {
        refused_.push_back(&holder);
    }
    return false;
}

void Outbox::let_go(const Operation& holder) {
    std::erase(refused_, &holder);
    if (holder_ == &holder) {
        holder_ = nullptr;
        items_.insert(items_.end(), behind_.begin(), behind_.end());
        behind_.clear();
    }
    to_resume_ = refused_.size();
    if (resuming_) return;  // called by one of those, as the next would be: the loop goes on
    resuming_ = true;
    while (to_resume_ != 0 && !refused_.empty() && holder_ == nullptr) {
        --to_resume_;
        Operation& next = *refused_.front();
        refused_.erase(refused_.begin());
        next.resume();  // it may be refused again, and then comes last
    }
    resuming_ = false;
}

std::size_t Outbox::gather(std::span<iovec> out) const {
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
        if (alone && count != 0) break;  // after what is before it
        add_piece(item.header.data(), item.header_length);
        if (alone && count != 0) break;  // after its header
        add_piece(item.payload, item.payload_length);
        if (alone) break;
    }
    return count;
}

void Outbox::sent(std::size_t bytes) {
    sent_of_first_ += bytes;
    while (first_ != items_.size()) {
        const Item& item = items_[first_];
        const std::size_t length = item.header_length + item.payload_length;
        if (sent_of_first_ < length) return;
        sent_of_first_ -= length;
        ++first_;
        if (trace_ != nullptr) trace_->record(storage::TraceClock::now() - item.since);
        // The item may move or go as soon as its operation adds another.
        if (Operation* operation = item.operation; operation != nullptr) operation->sent();
    }
}

void Outbox::clear() {
    items_.clear();
    behind_.clear();
    first_ = 0;
    sent_of_first_ = 0;
    holder_ = nullptr;
    refused_.clear();
}

}  // namespace gpunbd::server
