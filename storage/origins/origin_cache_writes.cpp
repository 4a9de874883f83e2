#include "storage/origins/origin_cache.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::seconds write_retry_interval{1};

}  // namespace

bool OriginCache::begin_record(std::uint64_t page) {
    if (records_.bytes() >= options_.max_unwritten) return false;
    // So that other pages can be evicted for clients that read.
    const bool may_add = records_.size() < std::max<std::uint64_t>(pages_in_memory() / 2, 1);
    if (!records_.begin(page, may_add)) return false;
    if (!has(page)) data_.set(page, true);
    return true;
}

std::optional<Status> OriginCache::begin_write(std::uint64_t page, SourceRequest& write,
                                               PageRequest& request) noexcept {
    GPUNBD_ASSERT(options_.writes != Writes::none, "an export of a read-only origin is read-only");
    const auto begin = [&](std::uint32_t failures) {
        if (!begin_record(page)) return false;
        if (!write.failures) write.failures = failures;
        return true;
    };
    try {
        // Before it looks at the device: if that fails from now on, the write is void.
        const std::uint32_t failures = failures_.load();
        if (!has_failed_device() && begin(failures)) return Status::ok;
        const Lock lock(mutex_);
        const bool is_usable = abandon_unreadable(page);
        if (lost_.test(page)) return Status::io_error;
        if (is_usable && begin(failures_.load())) return Status::ok;
        held_.push(request);
        changed_.notify_one();
        return std::nullopt;
    } catch (const std::exception&) {  // no memory
        return Status::io_error;
    }
}

bool OriginCache::begin_fill(std::uint64_t page, const PageRef& target, Parts parts,
                             SourceRequest& write, PageRequest& request) noexcept {
    try {
        return records_.begin_fill(page, target, parts, write, request);
    } catch (const std::exception&) {  // no memory
        complete(request, Status::io_error);
        return false;
    }
}

bool OriginCache::fill_rest(std::uint64_t offset, SourceRequest& write,
                            PageRequest& request) noexcept {
    if (offset % volume_.division().part_size() == 0 || offset == volume_.size()) return true;
    const Lock lock(mutex_);
    if (records_.cut_fill(offset, write)) return true;
    request.number = volume_.page_of(offset);
    request.parts = volume_.parts_at(offset, 1);
    try {
        fetches_.add(request);
        changed_.notify_one();
    } catch (const std::exception&) {  // no memory
        complete(request, Status::io_error);
    }
    return false;
}

void OriginCache::end_write(std::uint64_t offset, std::uint64_t length, std::uint64_t filled,
                            SourceRequest& write) noexcept {
    const std::uint64_t page = volume_.page_of(offset);
    WriteRecords::End end{.offset = offset,
                          .length = length,
                          .filled = filled,
                          .write = write,
                          .waits = waits_for_origin(write),
                          .now = Clock::now()};
    const auto is_valid = [&] { return write.failures == failures_.load(); };
    // The clock has to find a whole page, which may be a new one.
    if (!end.waits && length != volume_.page_size()) {
        const bool was_empty = records_.bytes() == 0;
        if (records_.end_if(end, is_valid)) {
            if (was_empty || records_.bytes() > options_.max_unwritten / 2) wake_worker();
            return;
        }
    }
    const Lock lock(mutex_);
    if (!is_valid()) {
        write.status = Status::io_error;
        end.filled = 0;
        if (volume_.is_unreadable(page)) {
            written_.cancel(end);
            abandon_unreadable(page);
            return settle(page);
        }
    }
    const bool was_empty = written_.bytes() == 0;
    written_.end(end);
    cached_.remember_written(page);
    // Otherwise a worker waits until the oldest change has its age.
    if (end.waits || was_empty || has_to_write()) changed_.notify_one();
}

void OriginCache::wake_worker() noexcept {
    // A worker that ends a round looks for more.
    if (rounds_.load() >= most_rounds_by_age) return;
    if (waiting_workers_.load() == 0) return;  // see run()
    {
        const Lock lock(mutex_);  // a worker that is about to wait does so now
    }
    changed_.notify_one();
}

bool OriginCache::finish(SourceRequest& write, PageRequest& request) noexcept {
    if (!waits_for_origin(write)) return true;
    const Lock lock(mutex_);
    const bool is_synced = !write.is_durable || write.status != Status::ok;
    if (write.pages_left == 0 && is_synced) return true;
    write.request = &request;
    if (write.pages_left == 0) {
        syncs_.push(write);
        changed_.notify_one();
    }
    return false;
}

bool OriginCache::writes_now() const {
    if (written_.bytes() == 0) return false;
    const auto now = Clock::now();
    if (now < retry_at_) return false;
    if (has_to_write()) return true;
    const auto oldest = written_.oldest();
    return oldest && now - *oldest >= options_.max_age;
}

bool OriginCache::has_to_write() const {
    return is_draining_ || starving_ != 0 || !held_.empty() ||
           written_.bytes() > options_.max_unwritten / 2;
}

void OriginCache::perform_round(std::uint64_t page, Worker& worker) {
    busy_.begin(number_of(worker), {page, page + 1});
    rounds_.fetch_add(1);
    set_in_origin(page, true);
    const WrittenPages::Blocks& blocks = written_.begin_round(page);
    const std::uint64_t bytes = blocks.count() * WrittenPages::block_size;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        status = store(page, blocks, worker.copier);
    }
    rounds_.fetch_sub(1);
    // Requests wait for all changes of Writes::through, and fail.
    const WrittenPages::Requests done =
        written_.end_round(page, status,
                           options_.writes == Writes::back ? WrittenPages::AfterFailure::keep
                                                           : WrittenPages::AfterFailure::give_up);
    const bool is_gone = status != Status::ok && volume_.is_unreadable(page);
    has_changed_origin_ = true;
    if (status == Status::ok) {
        counters_.written.add(bytes);
    } else {
        counters_.errors.add();
        if (!is_gone) retry_at_ = Clock::now() + write_retry_interval;
    }
    end_pages(worker);
    if (is_gone) abandon_unreadable(page);
    settle(page);
    // Changes that stay unwritten leave no room for more of them.
    complete(std::exchange(held_, PageRequests{}),
             options_.writes == Writes::back && !is_gone ? status : Status::ok);
    complete_all(done);
    round_ended_.notify_all();
}

Status OriginCache::store(std::uint64_t page, const WrittenPages::Blocks& wanted,
                          SlabCopier& copier) noexcept {
    try {
        const PageRef from = volume_.find(page);
        if (from.hole()) return Status::ok;  // it was zeroed after the write
        if (!from.device().readable()) {
            leave_device();
            return Status::io_error;
        }
        // A write that failed has filled nothing.
        WrittenPages::Blocks blocks = wanted;
        if (const Parts missing = from.missing()) blocks -= records_.blocks_of(missing);
        return transfers_.write(page, blocks, from, copier);
    } catch (const std::exception& error) {
        transfers_.log_error("cannot be written to", error.what());
        return Status::io_error;
    }
}

void OriginCache::settle(std::uint64_t page) {
    written_.forget(page, [&] { volume_.unmap(page); });
}

void OriginCache::complete_all(WrittenPages::Requests requests) {
    while (SourceRequest* const each = requests.pop()) {
        if (each->is_durable && each->status == Status::ok) {
            syncs_.push(*each);
            changed_.notify_one();
        } else {
            complete(*each->request, each->status);
        }
    }
}

void OriginCache::flush(SourceRequest& flush, PageRequest& request) noexcept {
    if (options_.writes == Writes::none) return complete(request, Status::ok);
    const Lock lock(mutex_);
    if (is_paused_) return complete(request, Status::io_error);
    flush.is_durable = true;
    flush.request = &request;
    try {
        // Otherwise the origin has everything that is complete.
        if (options_.writes == Writes::back) written_.wait_for_all(flush);
    } catch (const std::exception&) {  // no memory
        flush.status = Status::io_error;
    }
    if (flush.pages_left == 0 && flush.status != Status::ok) return complete(request, flush.status);
    if (flush.pages_left == 0) syncs_.push(flush);
    changed_.notify_all();
}

void OriginCache::perform_syncs() {
    ChainedQueue<SourceRequest> requests = std::exchange(syncs_, {});
    const Status status = sync();
    while (SourceRequest* const each = requests.pop()) complete(*each->request, status);
}

Status OriginCache::sync() {
    is_syncing_ = true;
    Status status = is_unsafe_ ? Status::io_error : Status::ok;
    if (status == Status::ok) {
        {
            const Unlock unlock(mutex_);
            status = transfers_.flush();
        }
        if (status != Status::ok && origin_->may_have_lost_writes()) is_unsafe_ = true;
    }
    is_syncing_ = false;
    if (status != Status::ok) counters_.errors.add();
    return status;
}

// --- zeroes --------------------------------------------------------------------------------------

void OriginCache::zero(ZeroRequest& zero, PageRequest& request) noexcept {
    GPUNBD_ASSERT(options_.writes != Writes::none, "an export of a read-only origin is read-only");
    const Lock lock(mutex_);
    zero.request.request = &request;
    zeroes_.push(zero);
    changed_.notify_one();
}

void OriginCache::perform_zero(ZeroRequest& zero, Worker& worker) {
    is_zeroing_ = true;
    const std::size_t number = number_of(worker);
    busy_.wait_for(number, transfers_.pages_of(zero));
    while (!busy_.begin_waiting(number)) pages_ended_.wait(mutex_);
    if (!zero.is_trim || origin_->can_zero()) {
        Status status = Status::ok;
        {
            const Unlock unlock(mutex_);
            status = zero_origin(zero, worker.copier);
        }
        has_changed_origin_ = true;
        zero.request.status = status;
        forget_pages(zero);
        if (status != Status::ok) counters_.errors.add();
    }
    is_zeroing_ = false;
    end_pages(worker);
    changed_.notify_all();  // what waited for the pages, and the next one
    WrittenPages::Requests done;
    done.push(zero.request);
    complete_all(done);
}

Status OriginCache::zero_origin(const ZeroRequest& zero, SlabCopier& copier) noexcept {
    const PageRange whole = transfers_.whole_pages_of(zero);
    const PageRange changed = transfers_.pages_of(zero);
    for (const std::uint64_t page : {changed.begin, changed.end - 1}) {
        if (lost_.test(page) && !whole.contains(page)) return Status::io_error;
    }
    return transfers_.zero(zero, copier);
}

void OriginCache::forget_pages(const ZeroRequest& zero) {
    const PageRange pages = transfers_.whole_pages_of(zero);
    for (std::uint64_t page = pages.begin; page < pages.end; ++page) {
        if (page % pages_at_once == 0) {
            const Unlock unlock(mutex_);  // clients may wait for it
        }
        // After a failure, the origin has zeroes or not.
        const bool is_zeroed = zero.request.status == Status::ok;
        if (written_.contains(page)) {
            if (!is_zeroed) continue;
            complete_all(written_.discard(page, Status::ok));
            settle(page);
        }
        if (is_zeroed && !zero.keeps_space && origin_->can_zero()) clear_data(page);
        if (is_zeroed) set_in_origin(page, false);
        if (is_zeroed) set_lost(page, false);
        if (volume_.mapped(page)) written_.unmap(page, [&] { volume_.unmap(page); });
    }
    complete(std::exchange(held_, PageRequests{}), Status::ok);
}

}  // namespace gpunbd::storage
