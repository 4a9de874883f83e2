#include "storage/transfers/transfer.hpp"

#include <algorithm>
#include <limits>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void Transfer::start(const TransferContext& context, TransferOwner& owner, Range range) {
    GPUNBD_ASSERT(issued_ == returned_ && staged_ == 0 && !request_.in_progress,
                  "a transfer is done with one request before it begins the next");
    GPUNBD_ASSERT(range.length <= std::numeric_limits<std::uint64_t>::max() - range.offset,
                  "a request is within the volume, so that its end does not overflow");
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
    request_.waiter = this;
}

std::optional<Status> Transfer::acquire(PageRef& page, Parts parts) {
    if (request_.in_progress) return std::nullopt;
    if (request_.status != Status::ok) return request_.status;
    owner_->waits.begin_wait(channels_->now());
    request_.parts = parts;
    return volume_->acquire(volume_->page_of(position_), page, request_,
                            channels_->page_completions());
}

std::optional<Status> Transfer::fetch() {
    if (request_.in_progress) return std::nullopt;
    if (request_.status != Status::ok) return request_.status;
    PageRequest& request = begin_request();
    request.number = volume_->page_of(position_);
    request.parts = volume_->parts_at(position_, next_length());
    volume_->source()->fetch(request);
    return std::nullopt;
}

PageRequest& Transfer::begin_request() {
    owner_->waits.begin_wait(channels_->now());
    channels_->page_completions().begin(request_);
    return request_;
}

bool Transfer::unmap() {
    if (request_.in_progress) return false;
    return volume_->unmap(volume_->page_of(position_), request_, channels_->page_completions());
}

void Transfer::prepare_copy(Chunk& chunk, Copy::Kind kind, std::byte* staging) {
    const std::uint64_t in_page = volume_->offset_in_page(chunk.offset);
    GPUNBD_ASSERT(!chunk.page.hole(), "a page stays pinned while it is copied");
    GPUNBD_ASSERT(in_page + chunk.length <= volume_->page_size(), "a copy ends with its page");
    // A write that cannot be received in place does not use the mapping.
    std::byte* const mapping = kind == Copy::Kind::write ? nullptr : chunk.page.cpu();
    chunk.copy.prepare(kind, chunk.length, chunk.page.address() + in_page,
                       mapping == nullptr ? nullptr : mapping + in_page, staging, *this,
                       chunk.page.slab().revocable);
    chunk.copy.urgent = account_->light;
}

bool Transfer::stage(Chunk& chunk, Copy::Kind kind, Channel& channel, StagingArena& arena,
                     std::size_t& held) {
    chunk.length = std::min(chunk.length, channel.staged_bytes());
    GPUNBD_ASSERT(chunk.length <= arena.largest(), "a free arena has room for each copy");
    std::byte* memory = nullptr;
    if (staged_ < channel.options().slots * volume_->width())
        memory = arena.take(chunk.length, held);
    if (memory == nullptr && staged_ == 0 && recycled_ != 0) {
        // A transfer may always take as much as it last gave back, even if its client holds too
        // much: the client's other memory may be waiting for this transfer to end.
        chunk.length = std::min(chunk.length, recycled_);
        memory = arena.take_again(chunk.length, held);
    }
    if (memory == nullptr) {
        // If chunks are in flight, their completion calls advance().
        if (staged_ == 0) {
            if (waiting_at_ != &arena) stop_waiting();  // the page has moved to another device
            waiting_at_ = &arena;
            owner_->waits.begin_wait(channels_->now());
            arena.wait(*this);
        }
        return false;
    }
    chunk.memory = memory;
    chunk.channel = &channel;
    chunk.staged = true;
    ++staged_;
    prepare_copy(chunk, kind, memory);
    return true;
}

void Transfer::unstage(Chunk& chunk, StagingArena& arena, std::size_t& held) {
    GPUNBD_ASSERT(chunk.staged && staged_ != 0, "a chunk returns its staging memory once");
    arena.give_back(chunk.memory, chunk.length, held);
    recycled_ = chunk.length;
    chunk.staged = false;
    --staged_;
}

void Transfer::copy_done(Copy& copy) {
    const auto moved = std::find_if(chunks_.begin(), chunks_.end(),
                                    [&](const Chunk& chunk) { return &chunk.copy == &copy; });
    GPUNBD_ASSERT(moved != chunks_.end() && moved->state == Chunk::State::moving,
                  "a copy that ends belongs to a chunk that is moving");
    moved->state = Chunk::State::ready;
    owner_->waits.end(&TransferWaits::device, channels_->polled());  // the rest is the worker's
    const bool has_failed = copy.status != Status::ok && !repeats_after_failure(*moved);
    if (has_failed && status_ == Status::ok) {
        status_ = copy.status;
        failed_at_ = moved->offset;
    }
    chunk_done(*moved);
    owner_->transfer_moved(*this);
}

void Transfer::page_ready() {
    owner_->waits.end(&TransferWaits::memory, channels_->now());
    advance();
    owner_->transfer_moved(*this);
}

void Transfer::staging_available() {
    GPUNBD_ASSERT(waiting_at_ != nullptr,
                  "only a waiting transfer is notified of free staging memory");
    waiting_at_ = nullptr;
    owner_->waits.end(&TransferWaits::memory, channels_->now());
    advance();
    if (waiting_at_ == nullptr) owner_->transfer_moved(*this);
}

}  // namespace gpunbd::storage
