#include "storage/transfers/read_transfer.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void ReadTransfer::begin(const TransferContext& context, TransferOwner& owner, Range range) {
    GPUNBD_ASSERT(!is_fetching_, "a transfer begins after its pages were fetched");
    start(context, owner, range);
    taken_ = 0;
    advance();
}

void ReadTransfer::fetch_absent(const TransferContext& context, TransferOwner& owner, Range range) {
    start(context, owner, range);
    taken_ = 0;
    is_fetching_ = true;
    fetch_next();
}

void ReadTransfer::fetch_next() {
    while (position_ != end_) {
        const std::uint32_t length = next_length();
        const std::uint64_t page = volume_->page_of(position_);
        // It does not pin the page, which would count as another use.
        if (!volume_->in_source(page) ||
            !volume_->source()->lacks(page, volume_->parts_at(position_, length))) {
            position_ += length;
        } else if (const std::optional<Status> error = fetch()) {
            status_ = *error;
            failed_at_ = position_;
            break;
        } else {
            return;
        }
    }
    is_fetching_ = false;
}

bool ReadTransfer::is_absent(std::uint32_t length, PageRef& page) const {
    const std::uint64_t number = volume_->page_of(position_);
    page = volume_->find_at(position_, length);
    const bool is_readable = page.hole() || page.device().readable();
    if (!is_readable && volume_->can_fetch_again(number)) page.reset();
    return page.hole() && volume_->in_source(number);
}

void ReadTransfer::advance() {
    if (page_requested()) return;
    if (is_fetching_) return fetch_next();
    while (position_ != end_ && issued_ - returned_ != window && status_ == Status::ok) {
        Chunk& next = chunk(issued_);
        next.offset = position_;
        next.length = next_length();
        next.memory = nullptr;
        next.staged = false;
        next.state = Chunk::State::ready;
        if (is_absent(next.length, next.page)) {
            if (const std::optional<Status> error = fetch()) {
                status_ = *error;
                failed_at_ = position_;
            }
            return;
        }
        if (!next.page.hole()) {
            Channel* const channel = channels_->find(next.page.device());
            if (channel == nullptr || !next.page.device().readable()) {
                next.page.reset();
                status_ = Status::io_error;
                failed_at_ = position_;
                return;
            }
            if (next.page.access() == Access::send) {
                next.memory = next.page.cpu() + volume_->offset_in_page(position_);
                channel->count_in_place(Copy::Kind::read, next.length);
            } else if (stage(next, Copy::Kind::read, *channel, channel->read_staging(),
                             account_->reads)) {
                next.state = Chunk::State::moving;
                channel->enqueue(next.copy);
            } else {
                next.page.reset();
                return;
            }
        }
        issue(next);
    }
}

bool ReadTransfer::next(Piece& piece) {
    if (taken_ == issued_ || status_ != Status::ok) return false;
    const Chunk& oldest = chunk(taken_);
    if (oldest.state != Chunk::State::ready) return false;
    ++taken_;
    piece = {.data = oldest.memory, .offset = oldest.offset, .length = oldest.length};
    return true;
}

bool ReadTransfer::whole_ready() const {
    for (std::uint32_t number = taken_; number != issued_; ++number) {
        if (chunk(number).state != Chunk::State::ready) return false;
    }
    return position_ == end_;
}

void ReadTransfer::release(Chunk& chunk) {
    if (chunk.staged) unstage(chunk, chunk.channel->read_staging(), account_->reads);
    chunk.page.reset();
}

void ReadTransfer::give_back() {
    GPUNBD_ASSERT(returned_ != taken_, "only a piece that was taken is returned");
    GPUNBD_ASSERT(chunk(returned_).state == Chunk::State::ready,
                  "a piece that was taken had been copied");
    release(chunk(returned_));
    ++returned_;
    advance();
}

void ReadTransfer::abandon() {
    position_ = end_;
    taken_ = issued_;
    stop_waiting();
    release_ready();
}

void ReadTransfer::release_ready() {
    for (; returned_ != issued_ && chunk(returned_).state != Chunk::State::moving; ++returned_) {
        release(chunk(returned_));
    }
}

bool ReadTransfer::repeats_after_failure(const Chunk& chunk) const {
    return !chunk.page.hole() && !chunk.page.device().readable() &&
           volume_->can_fetch_again(volume_->page_of(chunk.offset));
}

void ReadTransfer::chunk_done(Chunk& chunk) {
    // Only after abandon() is a moving chunk taken.
    if (taken_ == issued_) return release_ready();
    const bool has_failed = status_ == Status::ok && chunk.copy.status != Status::ok;
    if (has_failed || !chunk.page.is_intact()) chunk.state = Chunk::State::stale;
    chunk.page.reset();  // the client may be slow
    repeat_stale();
}

// The first stale chunk and those after it are read again, once they have all been copied.
void ReadTransfer::repeat_stale() {
    std::uint32_t first = taken_;
    while (first != issued_ && chunk(first).state != Chunk::State::stale) ++first;
    if (first == issued_) return;
    for (std::uint32_t number = first; number != issued_; ++number) {
        if (chunk(number).state == Chunk::State::moving) return;
    }
    position_ = chunk(first).offset;
    while (issued_ != first) release(chunk(--issued_));
    advance();
}

}  // namespace gpunbd::storage
