#include "storage/transfers/write_transfer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

void ZeroTransfer::begin(const TransferContext& context, TransferOwner& owner, Range range,
                         const Options& options) {
    GPUNBD_ASSERT(!deferred_, "a deferred step of an earlier request has been resumed");
    start(context, owner, range);
    options_ = options;
    deferred_ = false;
    advance();
}

void ZeroTransfer::zero_cache() {
    if (position_ == end_) {
        if (status_ == Status::ok && !page_requested()) status_ = request_status();
        return;
    }
    zero_ = {.request = {.is_durable = options_.is_durable},
             .offset = position_,
             .length = end_ - position_,
             .keeps_space = options_.keep_pages,
             .is_trim = options_.is_trim};
    position_ = end_;
    volume_->cache()->zero(zero_, begin_request());
}

void ZeroTransfer::advance() {
    if (volume_->cache() != nullptr) return zero_cache();
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
        // A volume may end within its last page. The remainder of that page is not used.
        const bool whole =
            volume_->offset_in_page(position_) == 0 &&
            (length == volume_->page_size() || position_ + length == volume_->size());
        // A shared page would be copied only to be zeroed.
        const bool drops =
            whole && (!options_.keep_pages || volume_->shared(page) || volume_->in_source(page));
        if (drops && !unmap()) return;
        const bool was_mapped = volume_->has_contents(page);
        Chunk& next = chunk(issued_);
        if (options_.keep_pages || (was_mapped && !whole)) {
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

void FlushTransfer::begin(const TransferContext& context, TransferOwner& owner) {
    start(context, owner, {});
    flush_ = SourceRequest{};
    volume_->cache()->flush(flush_, begin_request());
}

void FlushTransfer::advance() { status_ = request_status(); }

void FlushTransfer::chunk_done(Chunk&) { GPUNBD_ASSERT(false, "a flush copies nothing"); }

void WriteTransfer::begin(const TransferContext& context, TransferOwner& owner, Range range,
                          bool is_durable) {
    GPUNBD_ASSERT(!deferred_ && replacement_.hole(),
                  "each whole page of an earlier write replaces the shared one, or is given up");
    GPUNBD_ASSERT(filled_page_.hole(), "an earlier write has ended in each of its pages");
    start(context, owner, range);
    begin_ = range.offset;
    cache_begin_ = cache_end_ = range.offset;
    filled_end_ = end_;
    needs_rest_ = false;
    is_finished_ = volume_->cache() == nullptr;
    write_ = {.is_durable = is_durable};
    filled_ = 0;
    filled_bytes_ = 0;
    deferred_ = false;
    advance();
}

void WriteTransfer::advance() {
    while (position_ != end_ && issued_ - returned_ != window && status_ == Status::ok) {
        if (!begin_page()) return;
        Chunk& next = chunk(issued_);
        next.offset = position_;
        next.length = next_length();
        next.memory = nullptr;
        next.staged = false;
        next.replaces = false;
        next.state = Chunk::State::moving;  // until its bytes are in device memory
        const std::optional<Status> mapped = find_page(next.page);
        if (!mapped) return;
        Channel* const channel =
            *mapped == Status::ok ? channels_->find(next.page.device()) : nullptr;
        if (channel == nullptr || next.page.device().failed()) {
            next.page.reset();
            status_ = *mapped != Status::ok ? *mapped : Status::io_error;
            return;
        }
        if (channel->receives_into(next.page.slab(), length_in_page())) {
            next.memory = next.page.cpu() + volume_->offset_in_page(position_);
            channel->count_in_place(Copy::Kind::write, next.length);
        } else if (!stage(next, Copy::Kind::write, *channel, channel->write_staging(),
                          account_->writes)) {
            next.page.reset();
            return;
        }
        issue(next);
        if (!replacement_.hole() && volume_->offset_in_page(position_) == 0) {
            next.replaces = true;
            replacement_.reset();
        }
        if (volume_->offset_in_page(position_) == 0) filled_page_.reset();
    }
    if (position_ == end_) filled_page_.reset();
    end_pages();
}

std::optional<Status> WriteTransfer::find_page(PageRef& page) {
    if (replacement_.hole() && next_length() == volume_->page_size() && can_acquire()) {
        const std::uint64_t number = volume_->page_of(position_);
        replacement_ = volume_->take_replacement(number);
        if (replacement_.hole() && volume_->in_source(number) && !volume_->mapped(number) &&
            volume_->can_replace(number)) {
            PageRequest& request = begin_request();
            request.number = number;
            volume_->source()->make_room(request);
            return std::nullopt;
        }
    }
    if (!replacement_.hole()) {
        page = replacement_.again();
        return Status::ok;
    }
    return volume_->cache() == nullptr ? acquire(page) : find_page_of_cache(page);
}

std::optional<Status> WriteTransfer::find_page_of_cache(PageRef& page) {
    if (!filled_page_.hole()) {
        page = filled_page_.again();
        return Status::ok;
    }
    const Parts whole = volume_->whole_parts_at(position_, next_length());
    const Parts others = volume_->parts_at(position_, next_length()) & ~whole;
    const std::optional<Status> status = acquire(page, others);
    if (!status || *status != Status::ok || whole == 0 || !page.lacks(whole)) return status;
    // The same page for all chunks: another one would lack what they have filled.
    filled_page_ = page.again();
    PageRequest& request = begin_request();
    if (volume_->cache()->begin_fill(volume_->page_of(position_), page, whole, write_, request)) {
        cancel_request();
        return Status::ok;
    }
    filled_page_.reset();
    page.reset();
    return std::nullopt;
}

bool WriteTransfer::begin_page() {
    if (is_finished_ || position_ < cache_end_) return true;
    // end_pages() comes before the next call.
    const std::uint64_t begun = volume_->page_of(position_) - volume_->page_of(cache_begin_);
    if (cache_begin_ != cache_end_ && begun >= volume_->cache()->pages_of_a_write()) return false;
    if (page_requested()) return false;
    status_ = request_status();
    if (status_ != Status::ok) return false;
    PageRequest& request = begin_request();
    const std::optional<Status> status =
        volume_->cache()->begin_write(volume_->page_of(position_), write_, request);
    if (!status) return false;
    cancel_request();
    status_ = *status;
    if (status_ != Status::ok) return false;
    cache_end_ = position_ + next_length();
    return true;
}

void WriteTransfer::end_pages() {
    if (is_finished_) {
        if (status_ == Status::ok && !page_requested()) status_ = request_status();
        return;
    }
    if (!fetch_rest()) return;
    const bool is_over = position_ == end_ && returned_ == issued_;
    const std::uint64_t begins = returned_ == issued_ ? position_ : chunk(returned_).offset;
    const std::uint64_t in_memory = is_over ? cache_end_ : begins;
    if (cache_begin_ != in_memory) store_fence();  // the source reads the pages
    while (cache_begin_ != cache_end_) {
        const std::uint64_t page_left =
            volume_->page_size() - volume_->offset_in_page(cache_begin_);
        const std::uint64_t length = std::min(page_left, cache_end_ - cache_begin_);
        if (cache_begin_ + length > in_memory) break;
        const std::uint64_t filled =
            status_ != Status::ok ? 0 : std::max(filled_end_, cache_begin_) - cache_begin_;
        volume_->cache()->end_write(cache_begin_, length, std::min(filled, length), write_);
        cache_begin_ += length;
    }
    if (!is_over || page_requested() || deferred_) return;
    is_finished_ = true;
    PageRequest& request = begin_request();
    if (!volume_->cache()->finish(write_, request)) return;
    cancel_request();
    if (status_ == Status::ok) status_ = write_.status;
}

bool WriteTransfer::fetch_rest() {
    if (!needs_rest_) return true;
    if (page_requested()) return false;
    if (status_ == Status::ok) status_ = request_status();
    if (status_ == Status::ok) {
        PageRequest& request = begin_request();
        if (!volume_->cache()->fill_rest(filled_end_, write_, request)) return false;
        cancel_request();
    }
    needs_rest_ = false;
    const std::uint64_t part = volume_->division().part_size();
    filled_end_ = (filled_end_ + part - 1) / part * part;
    return true;
}

std::uint32_t WriteTransfer::length_in_page() const {
    const std::uint64_t before = std::min(volume_->offset_in_page(position_), position_ - begin_);
    return static_cast<std::uint32_t>(before) + next_length();
}

std::size_t WriteTransfer::lend(std::span<iovec> out) const {
    if (status_ != Status::ok) return 0;
    std::size_t count = 0;
    std::uint32_t skip = filled_bytes_;
    for (std::uint32_t number = filled_; number != issued_ && count != out.size(); ++number) {
        const Chunk& lent = chunk(number);
        GPUNBD_ASSERT(lent.memory != nullptr && skip < lent.length,
                      "a chunk of a write has memory that is not filled yet");
        out[count++] = {.iov_base = lent.memory + skip, .iov_len = lent.length - skip};
        skip = 0;
    }
    return count;
}

bool WriteTransfer::is_fetching() const {
    if (!page_requested() || position_ == end_) return false;
    // A write that a cache does not let begin may wait for long.
    return is_finished_ ? volume_->in_source(volume_->page_of(position_)) : position_ < cache_end_;
}

void WriteTransfer::filled(std::size_t bytes) {
    while (bytes != 0) {
        GPUNBD_ASSERT(filled_ != issued_, "no more is filled than was lent");
        Chunk& filling = chunk(filled_);
        const std::size_t part = std::min<std::size_t>(bytes, filling.length - filled_bytes_);
        filled_bytes_ += static_cast<std::uint32_t>(part);
        bytes -= part;
        if (filled_bytes_ != filling.length) return;
        filled_bytes_ = 0;
        ++filled_;
        if (filling.staged) {
            channels_->to(filling.page.device()).enqueue(filling.copy);
        } else {
            filling.state = Chunk::State::ready;
            release(filling);
        }
    }
    release_done();
    advance();
}

std::size_t WriteTransfer::fill(std::span<const std::byte> payload) {
    std::size_t total = 0;
    while (total != payload.size() && filled_ != issued_ && status_ == Status::ok) {
        const Chunk& filling = chunk(filled_);
        const std::size_t part =
            std::min<std::size_t>(payload.size() - total, filling.length - filled_bytes_);
        std::byte* const to = filling.memory + filled_bytes_;
        if (filling.staged) {  // the device fetches it at once, so it should stay in the cache
            std::memcpy(to, payload.data() + total, part);
        } else {
            store_streaming(to, payload.data() + total, part);
        }
        total += part;
        filled(part);
    }
    return total;
}

void WriteTransfer::release(Chunk& chunk) {
    if (chunk.staged) {
        Channel& channel = channels_->to(chunk.page.device());
        unstage(chunk, channel.write_staging(), account_->writes);
    }
    if (!chunk.replaces) chunk.page.reset();
}

void WriteTransfer::release_done() {
    while (returned_ != issued_ && chunk(returned_).state == Chunk::State::ready && !deferred_) {
        Chunk& done = chunk(returned_);
        if (done.replaces && !replace(done)) {
            deferred_ = true;
            channels_->defer(account_->deferred, *this);
            return;
        }
        ++returned_;
    }
    end_pages();
}

bool WriteTransfer::replace(Chunk& chunk) {
    GPUNBD_ASSERT(chunk.replaces && !chunk.page.hole(),
                  "the last chunk of a page that replaces another one has pinned it");
    if (status_ != Status::ok) {
        PagePool::give_up(std::move(chunk.page));
        return true;
    }
    store_fence();  // other threads find the page from now on
    if (!volume_->replace(volume_->page_of(chunk.offset), chunk.page)) return false;
    chunk.page.reset();
    return true;
}

void WriteTransfer::resume() {
    GPUNBD_ASSERT(deferred_, "a write is resumed only after it was deferred");
    deferred_ = false;
    release_done();
    if (deferred_) return;
    advance();
    owner_->transfer_moved(*this);
}

void WriteTransfer::chunk_done(Chunk& chunk) {
    release(chunk);
    release_done();
    advance();
}

void WriteTransfer::abandon() {
    if (status_ == Status::ok) status_ = Status::io_error;
    position_ = end_;
    stop_waiting();
    give_back_unfilled();
}

void WriteTransfer::end_here() {
    if (!is_finished_) {
        filled_end_ = filled_ == issued_ ? position_ : chunk(filled_).offset + filled_bytes_;
        needs_rest_ = true;
    }
    position_ = end_;
    stop_waiting();
    bool is_cut = !replacement_.hole();
    for (std::uint32_t number = filled_; number != issued_; ++number) {
        is_cut = is_cut || chunk(number).replaces;
    }
    if (is_cut && status_ == Status::ok) status_ = Status::io_error;
    if (filled_bytes_ != 0 && chunk(filled_).staged) {
        Chunk& last = chunk(filled_++);
        last.copy.length = std::exchange(filled_bytes_, 0);  // the staging memory keeps its length
        channels_->to(last.page.device()).enqueue(last.copy);
    }
    give_back_unfilled();
}

void WriteTransfer::give_back_unfilled() {
    for (; filled_ != issued_; ++filled_) {
        chunk(filled_).state = Chunk::State::ready;
        release(chunk(filled_));
    }
    if (!replacement_.hole()) PagePool::give_up(std::move(replacement_));
    filled_page_.reset();
    release_done();
}

}  // namespace gpunbd::storage
