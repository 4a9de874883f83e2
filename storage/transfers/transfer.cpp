#include "storage/transfers/transfer.hpp"

#include <algorithm>

namespace gpunbd::storage {

void Transfer::start(const TransferContext& context, TransferOwner& owner, Range range) {
    volume_ = &context.volume;
    channels_ = &context.channels;
    account_ = &context.account;
    owner_ = &owner;
    position_ = range.offset;
    end_ = range.offset + range.length;
    issued_ = returned_ = staged_ = recycled_ = 0;
    status_ = Status::ok;
    waiting_at_ = nullptr;
    request_.status = Status::ok;
    request_.asker = this;
}

std::uint32_t Transfer::next_length() const {
    const std::uint64_t page_left = volume_->page_size() - volume_->offset_in_page(position_);
    return static_cast<std::uint32_t>(std::min(page_left, end_ - position_));
}

std::optional<Status> Transfer::acquire(PageRef& page) {
    if (request_.under_way) return std::nullopt;
    if (request_.status != Status::ok) return request_.status;
    return volume_->acquire(volume_->page_of(position_), page, request_, channels_->page_returns());
}

void Transfer::prepare_copy(Chunk& chunk, Copy::Kind kind, std::byte* staging) {
    const std::uint64_t in_page = volume_->offset_in_page(chunk.offset);
    // A write takes the mapping at once or, for good reason, not at all.
    std::byte* const mapping = kind == Copy::Kind::write ? nullptr : chunk.page.cpu();
    chunk.copy.kind = kind;
    chunk.copy.status = Status::ok;
    chunk.copy.length = chunk.length;
    chunk.copy.address = chunk.page.address() + in_page;
    chunk.copy.cpu = mapping == nullptr ? nullptr : mapping + in_page;
    chunk.copy.staging = staging;
    chunk.copy.owner = this;
}

bool Transfer::stage(Chunk& chunk, Copy::Kind kind, Channel& channel, StagingArena& arena,
                     std::size_t& held) {
    chunk.length = std::min(chunk.length, channel.options().chunk_size);
    std::byte* memory = nullptr;
    if (staged_ < channel.options().slots * volume_->width())
        memory = arena.take(chunk.length, held);
    if (memory == nullptr && staged_ == 0 && recycled_ != 0) {
        // What it gave back it may have again, however much its client holds: all of that may be
        // waiting for this transfer's end.
        chunk.length = std::min(chunk.length, recycled_);
        std::size_t again = 0;
        memory = arena.take(chunk.length, again);
        held += again;
    }
    if (memory == nullptr) {
        // With chunks of its own in flight, their return brings it back here.
        if (staged_ == 0) {
            waiting_at_ = &arena;
            arena.wait(*this);
        }
        return false;
    }
    chunk.memory = memory;
    chunk.staged = true;
    ++staged_;
    prepare_copy(chunk, kind, memory);
    return true;
}

void Transfer::unstage(Chunk& chunk, StagingArena& arena, std::size_t& held) {
    arena.give_back(chunk.memory, chunk.length, held);
    recycled_ = chunk.length;
    chunk.staged = false;
    --staged_;
}

void Transfer::issue(const Chunk& chunk) {
    position_ += chunk.length;
    ++issued_;
    // What it waited for may have come by another way.
    stop_waiting();
}

void Transfer::copy_done(Copy& copy) {
    const auto moved = std::find_if(chunks_.begin(), chunks_.end(),
                                    [&](const Chunk& chunk) { return &chunk.copy == &copy; });
    moved->state = Chunk::State::ready;
    if (copy.status != Status::ok && status_ == Status::ok) {
        status_ = copy.status;
        failed_at_ = moved->offset;
    }
    chunk_moved(*moved);
    owner_->transfer_moved(*this);
}

void Transfer::stop_waiting() {
    if (waiting_at_ != nullptr) waiting_at_->stop_waiting(*this);
    waiting_at_ = nullptr;
}

void Transfer::page_answered() {
    advance();
    owner_->transfer_moved(*this);
}

void Transfer::staging_available() {
    waiting_at_ = nullptr;
    advance();
    if (waiting_at_ == nullptr) owner_->transfer_moved(*this);
}

}  // namespace gpunbd::storage
