#include "storage/transfers/zero_transfer.hpp"

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

void ZeroTransfer::begin(const TransferContext& context, TransferOwner& owner, Range range,
                         bool keep_pages) {
    GPUNBD_ASSERT(!deferred_, "a deferred step of an earlier request has been resumed");
    start(context, owner, range);
    keep_pages_ = keep_pages;
    deferred_ = false;
    advance();
}

void ZeroTransfer::advance() {
    for (std::uint32_t pages = 0; position_ != end_ && issued_ - returned_ != window && !deferred_;
         ++pages) {
        if (pages == pages_per_step) {
            defer_remainder();
            return;
        }
        if (status_ != Status::ok) {
            position_ = end_;
            return;
        }
        const std::uint64_t page = volume_->page_of(position_);
        const std::uint32_t length = next_length();
        // A volume may end within its last page, whose remainder is not used.
        const bool whole =
            volume_->offset_in_page(position_) == 0 &&
            (length == volume_->page_size() || position_ + length == volume_->size());
        // A shared page would be copied only to be zeroed.
        const bool drops = whole && (!keep_pages_ || volume_->shared(page));
        if (drops && !unmap()) return;
        const bool was_mapped = volume_->mapped(page);
        Chunk& next = chunk(issued_);
        if (keep_pages_ || (was_mapped && !whole)) {
            const std::optional<Status> mapped = acquire(next.page);
            if (!mapped) return;
            status_ = *mapped;
            if (!was_mapped) next.page.reset();  // a newly mapped page reads as zeroes
        }
        Channel* const channel = next.page.hole() ? nullptr : channels_->find(next.page.device());
        if (channel == nullptr && !next.page.hole()) {
            next.page.reset();
            status_ = Status::io_error;
        }
        if (channel != nullptr) {
            GPUNBD_ASSERT(next.state == Chunk::State::ready,
                          "a chunk has ended before it is used again");
            next.offset = position_;
            next.length = length;
            next.state = Chunk::State::moving;
            prepare_copy(next, Copy::Kind::zero, nullptr);
            channel->enqueue(next.copy);
            ++issued_;
        }
        position_ += length;
    }
}

void ZeroTransfer::abandon() { position_ = end_; }

void ZeroTransfer::defer_remainder() {
    deferred_ = true;
    channels_->defer(account_->deferred, *this);
}

void ZeroTransfer::resume() {
    GPUNBD_ASSERT(deferred_, "a request is resumed only after it was deferred");
    deferred_ = false;
    advance();
    if (!deferred_) owner_->transfer_moved(*this);
}

void ZeroTransfer::chunk_done(Chunk& moved) {
    moved.page.reset();
    while (returned_ != issued_ && chunk(returned_).state == Chunk::State::ready) ++returned_;
    advance();
}

}  // namespace gpunbd::storage
