#include "storage/origins/origin_cache.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/origins/origin_clone.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t longest_window_bytes = std::uint64_t{32} << 20;  // that are read ahead
// After the device has failed. At least 16 pages.
constexpr std::uint64_t reserve_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t shortest_window = 2;  // parts
// Pages in use that the clock passes before it takes the first of them. Clients wait meanwhile.
constexpr std::size_t longest_search = 1024;
// A page that was dropped is free once the clients that were reading it have gone on.
constexpr std::chrono::milliseconds retry_interval{1};
constexpr std::chrono::seconds patience{10};
// Without any progress. An origin on another server may come back meanwhile.
constexpr std::chrono::seconds patience_at_end{60};
constexpr std::chrono::seconds write_retry_interval{1};
constexpr std::size_t most_prefetches = 1024;  // ranges

void answer(PageRequest& request, Status status) {
    request.status = status;
    request.completions->put(request);
}

}  // namespace

OriginCache::OriginCache(Volume& volume, std::unique_ptr<Origin> origin, Options options)
    : volume_(volume),
      origin_(std::move(origin)),
      options_(std::move(options)),
      pages_in_memory_(volume.pool(0).memory().slabs().config().pages),
      data_(volume.pages()),
      written_(volume, options_.writes == Writes::back ? volume.kept_cache() : KeptCache()),
      lost_(volume.pages()) {
    {
        const Lock lock(mutex_);
        std::uint64_t at = 0;
        while (const auto data = origin_->next_data(at)) {
            const std::uint64_t end = volume_.page_of(data->end - 1) + 1;
            for (std::uint64_t page = volume_.page_of(data->begin); page != end; ++page) {
                data_.set(page, true);
            }
            at = data->end;
        }
        if (options_.reads_ahead == Ahead::all) end_of_all_ = volume_.pages();
        is_paused_ = volume_.is_quiesced();
        has_changed_origin_ = options_.continues;
        adopt();
    }
    volume_.pool(0).memory().lend();
    const SignalsBlocked blocked;
    try {
        for (Worker& worker : workers_) {
            worker.thread = std::thread([this, &worker] { run(worker); });
            ::pthread_setname_np(worker.thread.native_handle(), "origin");
        }
        volume_.pool(0).device().lenders().add(*this);
    } catch (...) {
        stop();
        throw;
    }
}

void OriginCache::adopt() {
    const KeptCache left = volume_.kept_cache();
    if (!left.is_kept()) return;
    const bool is_handed_over = left.is_handed_over();
    // After a kill, they are written at once.
    const auto since = Clock::now() - (is_handed_over ? options_.max_age.zero() : options_.max_age);
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (!volume_.mapped(page)) continue;
        volume_.set_parts(page, left.usable(page));
        remember(page, true);
        const Parts unwritten = left.unwritten(page) & volume_.division().all();
        if (unwritten == 0) continue;
        data_.set(page, true);
        written_.adopt(page, unwritten, since);
    }
    left.set_handed_over(false);
    const std::uint64_t bytes = written_.bytes();
    if (bytes == 0 || is_handed_over) return;
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("export", options_.export_name)
            .with("origin", origin_->name())
            .with("bytes", bytes)
            .log(
                "export '{}': an earlier server has left {} KiB that its origin does not have; "
                "they are written now",
                options_.export_name, (bytes + 1023) / 1024);
    });
}

void OriginCache::pause() noexcept {
    const Lock lock(mutex_);
    if (std::exchange(is_paused_, true)) return;
    // The next process has connections of its own, and a flush covers one connection only.
    has_to_flush_ = has_changed_origin_ && origin_->lock() == nullptr;
    is_flushed_ = true;
    changed_.notify_all();
}

bool OriginCache::is_paused() const {
    const Lock lock(mutex_);
    return is_paused_ && working_ == 0 && !has_requests();
}

std::optional<std::string> OriginCache::why_it_stays() const {
    if (!origin_->can_be_opened_again())
        return origin_->name() + ": its server does not offer several connections";
    const Device& device = volume_.pool(0).device();
    if (device.failed()) return device.info().id + " has failed";
    const Lock lock(mutex_);
    if (is_unsafe_ || !is_flushed_) return origin_->name() + ": it cannot be flushed; see the log";
    return std::nullopt;
}

std::optional<std::string> OriginCache::hand_over() {
    GPUNBD_ASSERT(is_paused() && volume_.is_quiesced(),
                  "the pages of a cache do not change while it is handed over");
    if (auto why = why_it_stays()) return why;
    const KeptCache table = volume_.kept_cache();
    if (!table.is_kept()) return std::nullopt;
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (!volume_.mapped(page)) continue;
        const Parts missing = volume_.missing_parts(page);
        table.set_present(page, volume_.division().all() & ~missing);
    }
    table.set_handed_over(true);
    return std::nullopt;
}

void OriginCache::resume() noexcept {
    const Lock lock(mutex_);
    is_paused_ = false;
    changed_.notify_all();
}

bool OriginCache::has_requests() const {
    const auto is_wanted = [](const auto& each) { return each.second.is_wanted; };
    return has_to_flush_ || !syncs_.empty() || !zeroes_.empty() || !rooms_.empty() ||
           !of_clones_.empty() || !held_.empty() || std::ranges::any_of(fetches_, is_wanted) ||
           written_.has_urgent();
}

void OriginCache::set_draining(bool is_draining) noexcept {
    const Lock lock(mutex_);
    is_draining_ = is_draining;
    changed_.notify_all();
}

OwnedFd OriginCache::lock() const {
    const OwnedFd* const held = origin_->lock();
    if (held == nullptr) return {};
    OwnedFd copy = OwnedFd::copy_of(*held);
    if (!copy) throw std::system_error(errno, std::generic_category(), origin_->name());
    return copy;
}

OriginCache::~OriginCache() {
    volume_.pool(0).device().lenders().remove(*this);
    {
        const Lock lock(mutex_);
        is_draining_ = true;
        changed_.notify_all();
        while (const std::uint64_t bytes = is_paused_ ? 0 : written_.bytes()) {
            const auto is_less = [&] { return records_.bytes() < bytes; };
            if (!round_ended_.wait_for(mutex_, patience_at_end, is_less)) break;
        }
    }
    stop();
    std::uint64_t lost = 0;
    bool flushes = false;
    {
        const Lock lock(mutex_);
        if (is_paused_) return;  // another process goes on
        lost = written_.bytes();
        flushes = has_changed_origin_;
    }
    if (flushes) {
        if (const auto why = origin_->flush()) log_loss("it cannot be flushed: " + *why);
    }
    if (lost == 0) return;
    const bool is_kept = written_.marks_pages() && volume_.outlives_process();
    log_loss(
        fmt::format("{} bytes that clients wrote are {}", lost,
                    is_kept ? "lost, unless a supervisor keeps them for the next server" : "lost"));
}

void OriginCache::stop() {
    {
        const Lock lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    for (Worker& worker : workers_) {
        if (worker.thread.joinable()) worker.thread.join();
    }
    const Lock lock(mutex_);
    GPUNBD_ASSERT(held_.empty() && rooms_.empty() && zeroes_.empty() && syncs_.empty(),
                  "the requests of clients are answered before a cache ends");
    for ([[maybe_unused]] const auto& each : fetches_) {
        GPUNBD_ASSERT(each.second.waiters.empty() && each.second.later_waiters.empty(),
                      "the requests for pages are answered before a cache ends");
    }
}

PageCache::Unwritten OriginCache::unwritten() const {
    Unwritten out{.bytes = records_.bytes()};
    if (const auto oldest = records_.oldest()) {
        out.age = std::chrono::duration<double>(Clock::now() - *oldest).count();
    }
    return out;
}

// --- reads ---------------------------------------------------------------------------------------

void OriginCache::fetch(PageRequest& request) noexcept {
    const std::uint64_t page = request.number;
    try {
        const Lock lock(mutex_);
        const auto [found, is_new] = fetches_.try_emplace(page);
        Fetch& wanted = found->second;
        if (!wanted.is_wanted && !wanted.is_running) {
            try {
                wanted_.push_back(page);
            } catch (...) {
                if (is_new) fetches_.erase(found);
                throw;
            }
        }
        wanted.is_wanted = true;
        counters_.misses.add();
        if (!wanted.is_running) wanted.parts |= request.parts;
        const bool is_late = (request.parts & ~wanted.parts) != 0;
        if (is_late) wanted.later_parts |= request.parts;
        (is_late ? wanted.later_waiters : wanted.waiters).push(request);
        if (options_.reads_ahead != Ahead::nothing) follow(page, request.parts);
        ahead_.empty() ? changed_.notify_one() : changed_.notify_all();
    } catch (const std::exception&) {  // no memory
        answer(request, Status::io_error);
    }
}

std::uint64_t OriginCache::longest_window() const {
    const PageDivision division = volume_.division();
    return std::min(longest_window_bytes / division.part_size(),
                    pages_in_memory() * division.parts() / 4);
}

// A client waits for these parts.
void OriginCache::follow(std::uint64_t page, Parts parts) noexcept {
    const std::uint64_t longest = longest_window();
    if (longest < shortest_window) return;
    const std::uint64_t in_page = volume_.division().parts();
    const std::uint64_t first =
        page * in_page + static_cast<std::uint64_t>(std::countr_zero(parts));
    const std::uint64_t behind = page * in_page + static_cast<std::uint64_t>(std::bit_width(parts));
    const auto continues = [first](const Stream& each) {
        return first <= each.next && first + each.window / 2 >= each.next;
    };
    const auto found = std::ranges::find_if(streams_, continues);
    if (found == streams_.end()) {
        streams_[next_stream_++ % streams_.size()] = {.next = behind};
        return;
    }
    found->window =
        std::clamp(2 * std::max(found->window, behind - first), shortest_window, longest);
    found->next = std::max(found->next, behind);
    std::uint64_t end = found->next + found->window;
    // A long sequence is read in whole pages.
    const bool is_long = found->window >= in_page;
    if (is_long) end = (end + in_page - 1) / in_page * in_page;
    end = std::min(end, volume_.pages() * in_page);
    while (found->next < end) {
        if (ahead_.size() >= (longest / in_page + 1) * streams_.size()) return;
        try {
            read_ahead(found->next / in_page, first_of({found->next, end}), is_long);
        } catch (const std::exception&) {  // no memory; the client's request will find that too
            return;
        }
        found->next = std::min(end, (found->next / in_page + 1) * in_page);
    }
}

Parts OriginCache::first_of(PartRange range) const {
    const std::uint64_t in_page = volume_.division().parts();
    const std::uint64_t first = range.begin % in_page;
    return PageDivision::run(first, std::min(range.end - range.begin, in_page - first));
}

Parts OriginCache::absent_of(std::uint64_t page, Parts parts) const {
    return has(page) ? parts & volume_.missing_parts(page) : 0;
}

bool OriginCache::joins_fetch(std::uint64_t page, Parts parts, bool joins_first) {
    const auto found = fetches_.find(page);
    if (found == fetches_.end()) return false;
    Fetch& fetch = found->second;
    const bool may_join = joins_first && !fetch.is_running;
    (may_join ? fetch.parts : fetch.later_parts) |= parts & ~fetch.parts;
    return true;
}

void OriginCache::read_ahead(std::uint64_t page, Parts parts, bool joins) {
    const Parts absent = absent_of(page, parts);
    if (absent == 0 || joins_fetch(page, absent, joins)) return;
    ahead_.push_back(page);
    fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true});
}

void OriginCache::prefetch(std::uint64_t offset, std::uint64_t length) noexcept {
    const Lock lock(mutex_);
    if (length == 0 || prefetches_.size() == most_prefetches) return;
    try {
        const std::uint64_t size = volume_.division().part_size();
        prefetches_.push_back({.begin = offset / size, .end = (offset + length - 1) / size + 1});
    } catch (const std::exception&) {  // no memory
        return;
    }
    prefetches_left_ = pages_in_memory_;
    changed_.notify_all();
}

bool OriginCache::perform_prefetch(Worker& worker) {
    if (fetching_ >= most_fetching || prefetches_.empty()) return false;
    PartRange& range = prefetches_.front();
    const std::uint64_t in_page = volume_.division().parts();
    for (std::uint64_t passed = 0; range.begin < range.end;) {
        const std::uint64_t page = range.begin / in_page;
        if (passed++ == pages_at_once) {
            const Unlock unlock(mutex_);  // clients may wait for it
            return true;
        }
        const Parts absent = absent_of(page, first_of(range));
        const bool begins = absent != 0 && !joins_fetch(page, absent, false);
        if (begins && !may_fetch(page)) return false;
        range.begin = (page + 1) * in_page;
        if (!begins) continue;
        fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true});
        if (!volume_.mapped(page) && --prefetches_left_ == 0) prefetches_.clear();
        perform_fetch(page, worker);
        return true;
    }
    prefetches_.pop_front();
    return true;
}

std::optional<std::uint64_t> OriginCache::next_of(std::deque<std::uint64_t>& queue) {
    if (fetching_ >= most_fetching) return std::nullopt;
    for (auto at = queue.begin(); at != queue.end();) {
        const auto found = fetches_.find(*at);
        if (found == fetches_.end() || found->second.is_running) {
            at = queue.erase(at);
        } else if (!may_fetch(*at)) {
            ++at;
        } else {
            const std::uint64_t page = *at;
            queue.erase(at);
            return page;
        }
    }
    return std::nullopt;
}

std::optional<std::uint64_t> OriginCache::next_of_all() {
    if (fetching_ >= most_fetching) return std::nullopt;
    for (; next_of_all_ < end_of_all_; ++next_of_all_) {
        const std::uint64_t page = next_of_all_;
        const Parts absent = absent_of(page, volume_.division().all());
        if (absent == 0 || joins_fetch(page, absent, false)) continue;
        if (!may_fetch(page)) return std::nullopt;
        fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true, .fills = true});
        ++next_of_all_;
        return page;
    }
    return std::nullopt;
}

void OriginCache::perform_fetch(std::uint64_t page, Worker& worker) {
    Fetch& fetch = fetches_.at(page);  // no other thread removes it
    fetch.is_running = true;
    const Parts parts = fetch.parts;
    begin_pages(worker, {page, page + 1});
    ++fetching_;
    Status status = Status::ok;
    do {
        const Unlock unlock(mutex_);
        status = load(page, parts, worker.copier);
    } while (status == Status::no_space && fetch.is_wanted && !is_stopping_);
    --fetching_;
    PageRequests waiters = std::exchange(fetch.waiters, PageRequests{});
    fetch.parts = 0;  // later requests wait for another fetch
    if (status == Status::io_error) answer_each(page, std::exchange(waiters, {}), parts, worker);
    if (status == Status::no_space) {
        if (fetch.fills) end_of_all_ = next_of_all_;
    } else if (status != Status::ok) {
        counters_.errors.add();
    }
    if (!fetch_later_parts(page, fetch)) fetches_.erase(page);
    end_pages(worker);
    const Unlock unlock(mutex_);
    complete(waiters, status);
}

void OriginCache::answer_each(std::uint64_t page, PageRequests waiters, Parts failed,
                              Worker& worker) {
    const Unlock unlock(mutex_);
    while (PageRequest* const each = waiters.pop()) {
        answer(*each,
               each->parts == failed ? Status::io_error : load(page, each->parts, worker.copier));
    }
}

bool OriginCache::fetch_later_parts(std::uint64_t page, Fetch& fetch) noexcept {
    const PageRequests waiters = std::exchange(fetch.later_waiters, PageRequests{});
    const bool is_wanted = !waiters.empty();
    if (!is_wanted && absent_of(page, fetch.later_parts) == 0) return false;
    try {
        (is_wanted ? wanted_ : ahead_).push_back(page);
    } catch (const std::exception&) {  // no memory
        complete(waiters, Status::io_error);
        return false;
    }
    fetch = {.parts = fetch.later_parts,
             .waiters = waiters,
             .is_wanted = is_wanted,
             .is_ahead = !is_wanted};
    changed_.notify_one();
    return true;
}

Status OriginCache::load(std::uint64_t page, Parts parts, SlabCopier& copier) noexcept {
    try {
        {
            const Lock lock(mutex_);
            abandon_unreadable(page);
            if (lost_.test(page)) return Status::io_error;
        }
        return fill(page, parts, copier);
    } catch (const std::exception& error) {
        log_error("cannot be read", error.what());
        return Status::io_error;
    }
}

Status OriginCache::fill(std::uint64_t page, Parts parts, SlabCopier& copier) {
    PageRef target = volume_.find_writable(page);
    const bool is_new = target.hole();
    const auto give_up = [&] {
        if (!is_new) return target.reset();
        if (!target.hole()) PagePool::give_up(std::move(target));
    };
    try {
        if (is_new) {
            const Status status = take(page, target, [&] {
                const Lock lock(mutex_);
                const Fetch& fetch = fetches_.at(page);
                if (fetch.is_wanted) return Demand::waiting;
                return fetch.fills || is_stopping_ ? Demand::none : Demand::expected;
            });
            if (status != Status::ok) return status;
        }
        const Parts wanted = is_new ? parts : parts & target.missing();
        if (wanted == 0) return Status::ok;
        const Status of_read = read(page, wanted, target, copier);
        const Lock lock(mutex_);
        const bool has_failed = target.device().failed();
        if (has_failed || of_read != Status::ok) {
            const Unlock unlock(mutex_);
            const bool repeats = has_failed && &target.device() != options_.reserve;
            give_up();
            return repeats && leave_device() ? fill(page, parts, copier) : Status::io_error;
        }
        if (!is_new) {
            target.add_parts(wanted);
            const PageIndex index = target.index();
            const bool is_cached = index < cached_.size() && cached_[index].number == page;
            if (is_cached) ++cached_[index].uses;  // this one is no client's
        } else if (volume_.fill_hole(page, target, volume_.division().all() & ~wanted)) {
            const Fetch& fetch = fetches_.at(page);
            remember(page, fetch.is_wanted);
            (fetch.is_ahead ? counters_.prefetched : counters_.fetched).add();
        } else {
            give_up();  // a client has written the whole page
        }
        return Status::ok;
    } catch (...) {
        give_up();
        throw;
    }
}

// --- a device that fails -------------------------------------------------------------------------

bool OriginCache::has_failed_device() const { return volume_.pool(0).device().failed(); }

bool OriginCache::leave_device() {
    const Lock leaving(leaving_mutex_);
    if (has_left_) return true;
    if (options_.reserve == nullptr) return false;
    const std::uint64_t pages = std::min(
        std::max(reserve_bytes / volume_.page_size(), std::uint64_t{16}), pages_in_memory());
    const std::string& reserve = options_.reserve->info().id;
    std::string why = volume_.add_reserve(*options_.reserve, pages);
    has_left_ = why.empty();
    PageRef first;
    if (has_left_ && volume_.take_page(0, first) != Status::ok) why = reserve + " has none now";
    if (!first.hole()) PagePool::give_up(std::move(first));
    log_if_possible([&] {
        const std::string& id = volume_.pool(0).device().info().id;
        LogLine line(spdlog::level::err);
        line.with("export", options_.export_name).with("device", id);
        line.log("export '{}': {} has failed, and {}", options_.export_name, id,
                 why.empty()
                     ? fmt::format("the cache of {} is {} MiB of {} memory from now on",
                                   origin_->name(), pages * volume_.page_size() >> 20, reserve)
                     : "there is no memory for another cache: " + why);
    });
    if (!has_left_) return false;
    const Lock lock(mutex_);
    written_.stop_marking();
    pages_in_memory_ = pages;
    pool_ = volume_.pools() - 1;
    cached_.clear();
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (page % pages_at_once == 0) {
            const Unlock unlock(mutex_);  // clients may wait for it
        }
        abandon_unreadable(page);
        remember(page, true);  // a client may have taken it from the reserve meanwhile
    }
    complete(std::exchange(held_, PageRequests{}), Status::ok);
    return true;
}

bool OriginCache::abandon_unreadable(std::uint64_t page) {
    if (!has_failed_device()) return true;
    failures_.store(1);
    if (!volume_.is_unreadable(page)) return true;
    if (written_.contains(page)) {
        if (written_.is_in_round(page)) return false;
        // Otherwise the page is as in the origin, and writes in progress fail.
        if (written_.is_unwritten(page)) {
            if (options_.writes == Writes::back) lose(page);
            complete_all(written_.discard(page, Status::io_error));
            settle(page);
        }
    }
    volume_.unmap(page);
    return true;
}

void OriginCache::lose(std::uint64_t page) {
    set_lost(page, true);
    counters_.errors.add();
    if (std::exchange(is_unsafe_, true)) return;
    log_loss(
        "changes that it does not have yet were lost with a device; what they changed cannot "
        "be read, and no flush succeeds before a restart");
}

Status OriginCache::read(std::uint64_t page, Parts parts, const PageRef& to, SlabCopier& copier) {
    if (to.device().failed()) return Status::io_error;
    const std::uint64_t size = volume_.division().part_size();
    std::uint64_t bytes = 0;
    Status status = Status::ok;
    while (parts != 0 && status == Status::ok) {
        const auto first = static_cast<std::uint64_t>(std::countr_zero(parts));
        const auto count = static_cast<std::uint64_t>(std::countr_one(parts >> first));
        SlabPosition position = to.position();
        position.offset += first * size;
        status = read_run(page * volume_.page_size() + first * size, count * size, position, copier,
                          bytes);
        parts &= ~PageDivision::run(first, count);
    }
    const Lock lock(mutex_);
    counters_.read_bytes.add(bytes);
    if (status == Status::ok) has_failed_ = false;
    return status;
}

Status OriginCache::read_run(std::uint64_t offset, std::uint64_t length, SlabPosition to,
                             SlabCopier& copier, std::uint64_t& bytes) {
    const auto get = [&](std::uint64_t done, std::span<std::byte> memory) {
        // A clone may go on after the end of the origin, with zeroes.
        const std::uint64_t left = volume_.size() - std::min(offset + done, volume_.size());
        const auto part = memory.first(std::min<std::uint64_t>(memory.size(), left));
        std::memset(memory.data() + part.size(), 0, memory.size() - part.size());
        if (part.empty()) return Status::ok;
        if (const auto why = origin_->read(offset + done, part)) {
            log_error("cannot be read", *why);
            return Status::io_error;
        }
        bytes += part.size();
        return Status::ok;
    };
    try {
        return copier.fill(to, length, get);
    } catch (const std::exception& error) {  // the device may be failing
        log_error("cannot be read", error.what());
        return Status::io_error;
    }
}

// --- memory --------------------------------------------------------------------------------------

template <typename GetDemand>
Status OriginCache::take(std::uint64_t page, PageRef& out, GetDemand demand) {
    const auto deadline = Clock::now() + patience;
    std::uint32_t tries_without_chance = 0;
    while (true) {
        const bool has_failed = has_failed_device();
        if (has_failed && !leave_device()) return Status::io_error;
        const Status status = volume_.take_page(page, out);
        if (status == Status::io_error && !has_failed && has_failed_device()) continue;
        if (status != Status::no_space) return status;
        const Demand now = demand();
        if (now == Demand::none) return status;
        if (evict_one()) continue;
        if (now == Demand::expected) return status;
        const bool is_late = Clock::now() > deadline;
        // While another pool asks for memory, this one gets none, but soon may.
        const bool has_chance =
            volume_.mapped_bytes() != 0 || volume_.pool(0).device().lenders().are_asked();
        tries_without_chance = has_chance ? 0 : tries_without_chance + 1;
        if (is_late || tries_without_chance > 1) {
            log_error("is not cached",
                      is_late ? "no page of its cache becomes free; give it a larger cache"
                              : "its device has no memory for a page");
            return Status::io_error;
        }
        set_starving(true);  // pages may become free by being written
        std::this_thread::sleep_for(retry_interval);
        set_starving(false);
    }
}

void OriginCache::set_starving(bool is_starving) {
    const Lock lock(mutex_);
    starving_ += is_starving ? 1 : -1;
    if (is_starving && written_.bytes() != 0) changed_.notify_one();
}

void OriginCache::make_room(PageRequest& request) noexcept {
    const Lock lock(mutex_);
    rooms_.push(request);
    changed_.notify_one();
}

void OriginCache::perform_room(PageRequest& request) {
    ++fetching_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        try {
            PageRef page;
            status = take(request.number, page, [] { return Demand::waiting; });
            if (status == Status::ok) PagePool::give_up(std::move(page));
        } catch (const std::exception&) {
            status = Status::io_error;
        }
    }
    --fetching_;
    answer(request, status);
}

void OriginCache::submit(const CloneRequest& request) noexcept {
    try {
        const Lock lock(mutex_);
        of_clones_.push_back(request);
        changed_.notify_one();
    } catch (const std::exception&) {  // no memory
        answer(*request.request, Status::io_error);
    }
}

void OriginCache::perform_for_clone(const CloneRequest& request, Worker& worker) {
    const std::uint64_t page = request.request->number;
    ++fetching_;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        try {
            status = request.copies ? request.clone->copy_page(page, worker.copier)
                                    : request.clone->make_room_for(page);
        } catch (const std::exception&) {  // no memory, or no channel
            status = Status::io_error;
        }
    }
    --fetching_;
    answer(*request.request, status);
}

const PageStates& OriginCache::states() const { return volume_.pool(pool_).memory().pages(); }

void OriginCache::remember(std::uint64_t page, bool is_wanted) {
    const PageEntry entry = volume_.slot(page).load();
    if (!entry.is_mapped() || entry.device() != pool_) return;
    const PageIndex index = entry.page();
    try {
        if (index >= cached_.size()) cached_.resize(index + std::size_t{1});
    } catch (const std::exception&) {  // no memory; the page stays
        return;
    }
    cached_[index] = {
        .number = page, .uses = states().uses(index) + (is_wanted ? 1 : 0), .is_ahead = !is_wanted};
}

bool OriginCache::is_here(std::size_t index) const {
    const PageEntry entry = volume_.slot(cached_[index].number).load();
    return entry.is_mapped() && entry.device() == pool_ && entry.page() == index;
}

bool OriginCache::makes_room(std::size_t index) const {
    const std::uint64_t page = cached_[index].number;
    return is_here(index) && !states().is_pinned(static_cast<PageIndex>(index)) &&
           !written_.contains(page) && !is_used(page, false);
}

std::uint64_t OriginCache::spare_slabs() const {
    const std::uint64_t slabs = pool_ == 0 ? volume_.pool(0).memory().usable_slabs() : 0;
    return slabs - std::min<std::uint64_t>(slabs, 1);
}

bool OriginCache::release_slab() noexcept {
    const Lock lock(mutex_);
    if (is_paused_ || cached_.empty() || spare_slabs() == 0) return false;
    const std::size_t in_slab = volume_.pool(0).memory().slabs().numbers().slab_pages();
    for (std::size_t left = cached_.size() / in_slab + 1; left != 0; --left) {
        const std::size_t slab = hand_ % cached_.size() / in_slab;
        hand_ = (slab + 1) * in_slab;
        if (drop_slab(static_cast<std::uint32_t>(slab))) return true;
    }
    return false;
}

std::uint64_t OriginCache::lendable() const noexcept {
    const Lock lock(mutex_);
    return spare_slabs() * volume_.pool(0).memory().slabs().numbers().slab_pages() *
           volume_.page_size();
}

bool OriginCache::drop_slab(std::uint32_t slab) {
    PageAllocator& memory = volume_.pool(0).memory();
    const std::size_t in_slab = memory.slabs().numbers().slab_pages();
    const std::size_t begin = slab * in_slab;
    const std::size_t end = std::min(begin + in_slab, cached_.size());
    for (std::size_t index = begin; index != end; ++index) {
        if (is_here(index) && !makes_room(index)) return false;
    }
    if (memory.is_draining(slab) || !memory.drain(slab)) return false;
    bool is_dropped = true;
    for (std::size_t index = begin; index != end; ++index) {
        if (!is_here(index)) continue;
        const bool drops = drop_clean(cached_[index].number);
        if (drops) counters_.evicted.add();
        is_dropped = is_dropped && drops;
    }
    if (!is_dropped) memory.stop_draining(slab);
    return is_dropped;
}

bool OriginCache::evict_one() {
    const Lock lock(mutex_);
    while (const Cached* const found = next_to_evict()) {
        if (!drop_clean(found->number)) continue;  // a write has begun
        if (found->is_ahead) counters_.wasted.add();
        counters_.evicted.add();
        return true;
    }
    return false;
}

const OriginCache::Cached* OriginCache::next_to_evict() {
    const Cached* found = nullptr;
    std::size_t used = 0;
    for (std::size_t left = cached_.size(); left != 0 && used != longest_search; --left) {
        const std::size_t index = hand_++ % cached_.size();
        Cached& cached = cached_[index];
        if (!makes_room(index)) continue;
        const std::uint32_t uses = states().uses(static_cast<PageIndex>(index));
        const bool is_unused = uses == cached.uses;
        if (is_unused || found == nullptr) found = &cached;
        if (is_unused) break;
        cached.uses = uses;
        cached.is_ahead = false;
        ++used;
    }
    return found;
}

std::uint64_t OriginCache::evict(std::uint64_t pages) {
    {
        const Lock lock(mutex_);
        if (is_paused_) return 0;
        ++working_;  // it is not paused before this has ended
    }
    std::uint64_t evicted = 0;
    while (evicted != pages && evict_one()) ++evicted;
    const Lock lock(mutex_);
    --working_;
    if (is_paused_) changed_.notify_one();  // the flush before a hand-over
    return evicted;
}

bool OriginCache::drop_clean(std::uint64_t page) {
    return !is_used(page, false) && written_.unless_written(page, [&] { volume_.unmap(page); });
}

bool OriginCache::drop(std::uint64_t page) {
    const Lock lock(mutex_);
    if (is_paused_) return false;
    if (written_.contains(page)) {
        written_.urge(page);
        changed_.notify_one();
        return false;
    }
    if (!drop_clean(page)) return false;
    counters_.evicted.add();
    return true;
}

// --- writes --------------------------------------------------------------------------------------

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

void OriginCache::end_write(std::uint64_t offset, std::uint64_t length,
                            SourceRequest& write) noexcept {
    const std::uint64_t page = volume_.page_of(offset);
    const bool waits = waits_for_origin(write);
    const auto now = Clock::now();
    const auto is_valid = [&] { return write.failures == failures_.load(); };
    // The clock has to find a whole page, which may be a new one.
    if (!waits && length != volume_.page_size()) {
        const bool was_empty = records_.bytes() == 0;
        if (records_.end_if(page, volume_.offset_in_page(offset), length, now, is_valid)) {
            if (was_empty || records_.bytes() > options_.max_unwritten / 2) wake_worker();
            return;
        }
    }
    const Lock lock(mutex_);
    if (!is_valid()) {
        write.status = Status::io_error;
        if (volume_.is_unreadable(page)) {
            written_.cancel(page);
            abandon_unreadable(page);
            return settle(page);
        }
    }
    const bool was_empty = written_.bytes() == 0;
    written_.end(page, volume_.offset_in_page(offset), length, waits ? &write : nullptr, now);
    const PageEntry entry = volume_.slot(page).load();
    const bool is_new = entry.is_mapped() &&
                        (entry.page() >= cached_.size() || cached_[entry.page()].number != page);
    if (is_new) remember(page, true);
    // Otherwise a worker waits until the oldest change has its age.
    if (waits || was_empty || has_to_write()) changed_.notify_one();
}

void OriginCache::wake_worker() noexcept {
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
    begin_pages(worker, {page, page + 1});
    ++rounds_;
    const WrittenPages::Blocks& blocks = written_.begin_round(page);
    const std::uint64_t bytes = blocks.count() * WrittenPages::block_size;
    Status status = Status::ok;
    {
        const Unlock unlock(mutex_);
        status = store(page, blocks, worker.copier);
    }
    --rounds_;
    // Requests wait for all changes of Writes::through, and fail.
    const WrittenPages::Requests done =
        written_.end_round(page, status,
                           options_.writes == Writes::back ? WrittenPages::AfterFailure::keep
                                                           : WrittenPages::AfterFailure::give_up);
    const bool is_gone = status != Status::ok && volume_.is_unreadable(page);
    has_changed_origin_ = true;
    if (status == Status::ok) {
        counters_.written.add(bytes);
        has_failed_ = false;
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
        const std::uint64_t begin = page * volume_.page_size();
        // A write that failed has changed nothing in parts without contents.
        WrittenPages::Blocks blocks = wanted;
        if (const Parts missing = from.missing()) blocks -= records_.blocks_of(missing);
        for (auto first = blocks.find_first(); first != WrittenPages::Blocks::npos;) {
            auto last = first;
            while (last + 1 != blocks.size() && blocks.test(last + 1)) ++last;
            SlabPosition position = from.position();
            const std::uint64_t skipped = first * WrittenPages::block_size;
            position.offset += skipped;
            const std::uint64_t length =
                std::min((last + 1) * WrittenPages::block_size, volume_.size() - begin) - skipped;
            const Status status = copier.drain(
                position, length, [&](std::uint64_t done, std::span<const std::byte> memory) {
                    const auto why = origin_->write(begin + skipped + done, memory);
                    if (!why) return Status::ok;
                    log_error("cannot be written to", *why);
                    return Status::io_error;
                });
            if (status != Status::ok) return status;
            first = blocks.find_next(last);
        }
        return Status::ok;
    } catch (const std::exception& error) {
        log_error("cannot be written to", error.what());
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
            answer(*each->request, each->status);
        }
    }
}

void OriginCache::flush(SourceRequest& flush, PageRequest& request) noexcept {
    if (options_.writes == Writes::none) return answer(request, Status::ok);
    const Lock lock(mutex_);
    if (is_paused_) return answer(request, Status::io_error);
    flush.is_durable = true;
    flush.request = &request;
    try {
        // Otherwise the origin has everything that is complete.
        if (options_.writes == Writes::back) written_.wait_for_all(flush);
    } catch (const std::exception&) {  // no memory
        flush.status = Status::io_error;
    }
    if (flush.pages_left == 0 && flush.status != Status::ok) return answer(request, flush.status);
    if (flush.pages_left == 0) syncs_.push(flush);
    changed_.notify_all();
}

void OriginCache::perform_syncs() {
    ChainedQueue<SourceRequest> requests = std::exchange(syncs_, {});
    const Status status = sync();
    while (SourceRequest* const each = requests.pop()) answer(*each->request, status);
}

Status OriginCache::sync() {
    is_syncing_ = true;
    Status status = is_unsafe_ ? Status::io_error : Status::ok;
    if (status == Status::ok) {
        {
            const Unlock unlock(mutex_);
            status = flush_origin();
        }
        if (status != Status::ok && origin_->may_have_lost_writes()) is_unsafe_ = true;
    }
    is_syncing_ = false;
    if (status != Status::ok) counters_.errors.add();
    return status;
}

Status OriginCache::flush_origin() noexcept {
    try {
        const auto why = origin_->flush();
        if (!why) return Status::ok;
        if (origin_->may_have_lost_writes()) {
            log_loss(*why + "; writes may be lost, so no flush succeeds before a restart");
        } else {
            log_error("cannot be flushed", *why);
        }
    } catch (const std::exception& error) {  // no memory
        log_error("cannot be flushed", error.what());
    }
    return Status::io_error;
}

// --- zeroes --------------------------------------------------------------------------------------

void OriginCache::zero(ZeroRequest& zero, PageRequest& request) noexcept {
    GPUNBD_ASSERT(options_.writes != Writes::none, "an export of a read-only origin is read-only");
    const Lock lock(mutex_);
    zero.request.request = &request;
    zeroes_.push(zero);
    changed_.notify_one();
}

OriginCache::Pages OriginCache::pages_of(const ZeroRequest& zero) const {
    return {.begin = volume_.page_of(zero.offset),
            .end = volume_.page_of(zero.offset + zero.length - 1) + 1};
}

void OriginCache::perform_zero(ZeroRequest& zero, Worker& worker) {
    is_zeroing_ = true;
    Used& mine = used(worker);
    mine = {.pages = pages_of(zero), .is_waiting = true};
    const auto overlaps = [&](const Used& each) {
        return &each != &mine && each.pages.overlaps(mine.pages);
    };
    while (std::ranges::any_of(used_, overlaps)) {
        awaits_pages_ = true;
        pages_ended_.wait(mutex_);
    }
    mine.is_waiting = false;
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

// The origin may know whole blocks only. It has the rest of those at both ends, or gets it in a
// later round: none is in progress.
Origin::Error OriginCache::zero_blocks(const ZeroRequest& zero) {
    constexpr std::uint64_t block = WrittenPages::block_size;
    const std::uint64_t end = zero.offset + zero.length;
    std::uint64_t at = zero.offset;
    const auto zero_part = [&](std::uint64_t until) -> Origin::Error {
        alignas(block) std::array<std::byte, block> memory{};
        const std::uint64_t begin = at / block * block;
        const auto all = std::span(memory).first(std::min(block, volume_.size() - begin));
        if (auto why = origin_->read(begin, all)) return why;
        std::memset(memory.data() + (at - begin), 0, until - at);
        at = until;
        return origin_->write(begin, all);
    };
    if (at % block != 0) {
        if (auto why = zero_part(std::min(end, (at / block + 1) * block))) return why;
    }
    const std::uint64_t whole = end == volume_.size() ? end : end / block * block;
    if (at < whole) {
        if (auto why = origin_->zero(at, whole - at, zero.keeps_space)) return why;
        at = whole;
    }
    return at < end ? zero_part(end) : std::nullopt;
}

Status OriginCache::zero_origin(const ZeroRequest& zero, SlabCopier& copier) noexcept {
    try {
        const auto is_lost_in_part = [&](std::uint64_t page) {
            const Pages whole = whole_pages_of(zero);
            return lost_.test(page) && (page < whole.begin || page >= whole.end);
        };
        const Pages changed = pages_of(zero);
        if (is_lost_in_part(changed.begin) || is_lost_in_part(changed.end - 1)) {
            return Status::io_error;
        }
        if (const auto why = zero_blocks(zero)) {
            log_error("cannot be written to", *why);
            return Status::io_error;
        }
        // The parts of pages at both ends; whole pages are dropped.
        const std::uint64_t end = zero.offset + zero.length;
        const std::uint64_t size = volume_.page_size();
        const Pages whole = whole_pages_of(zero);
        for (const std::uint64_t page : {changed.begin, changed.end - 1}) {
            const std::uint64_t from = std::max(zero.offset, page * size);
            const std::uint64_t until = std::min(end, (page + 1) * size);
            if (page >= whole.begin && page < whole.end) continue;
            const PageRef to = volume_.find(page);
            if (to.hole() || !to.device().readable()) continue;
            SlabPosition position = to.position();
            position.offset += from - page * size;
            const Status status =
                copier.fill(position, until - from, [](std::uint64_t, std::span<std::byte> memory) {
                    std::memset(memory.data(), 0, memory.size());
                    return Status::ok;
                });
            if (status != Status::ok) return status;
            if (changed.begin == changed.end - 1) break;
        }
        return Status::ok;
    } catch (const std::exception& error) {
        log_error("cannot be written to", error.what());
        return Status::io_error;
    }
}

OriginCache::Pages OriginCache::whole_pages_of(const ZeroRequest& zero) const {
    const std::uint64_t end = zero.offset + zero.length;
    const std::uint64_t begin = volume_.page_of(zero.offset + volume_.page_size() - 1);
    return {.begin = begin,
            .end = std::max(begin, end == volume_.size() ? volume_.pages() : volume_.page_of(end))};
}

void OriginCache::forget_pages(const ZeroRequest& zero) {
    const Pages pages = whole_pages_of(zero);
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
        if (is_zeroed) set_lost(page, false);
        if (volume_.mapped(page)) written_.unmap(page, [&] { volume_.unmap(page); });
    }
    complete(std::exchange(held_, PageRequests{}), Status::ok);
}

// --- the workers ---------------------------------------------------------------------------------

void OriginCache::run(Worker& worker) noexcept {
    const Lock lock(mutex_);
    while (!is_stopping_) {
        ++working_;
        const bool has_worked = work(worker);
        --working_;
        if (has_worked) continue;
        // Before it looks at what is unwritten: a write that ends later wakes it.
        waiting_workers_.fetch_add(1);
        wait_for_work();
        waiting_workers_.fetch_sub(1);
    }
}

bool OriginCache::work(Worker& worker) {
    if (work_on_request(worker)) return true;
    if (is_paused_) {
        if (!has_to_flush_ || working_ != 1) return false;
        is_flushed_ = sync() == Status::ok;
        has_to_flush_ = false;
        return true;
    }
    try {
        return work_ahead(worker);
    } catch (const std::exception&) {  // no memory to read ahead of clients
        next_of_all_ = end_of_all_;
        return false;
    }
}

bool OriginCache::work_on_request(Worker& worker) {
    // One worker each, so that they cannot delay the rest.
    if (!is_syncing_ && !syncs_.empty()) return perform_syncs(), true;
    if (!is_zeroing_ && !zeroes_.empty()) return perform_zero(*zeroes_.pop(), worker), true;
    // Half of the workers prefer writes, so that neither reads nor writes wait for all of the
    // other.
    if (rounds_ < workers / 2 && perform_urgent_round(worker)) return true;
    return perform_for_memory(worker) || perform_urgent_round(worker);
}

bool OriginCache::perform_urgent_round(Worker& worker) {
    const auto page = written_.next_urgent([this](std::uint64_t each)
                                               REQUIRES(mutex_) { return may_write(each); });
    if (page) perform_round(*page, worker);
    return page.has_value();
}

// Reads and writes of whole pages take turns.
bool OriginCache::perform_for_memory(Worker& worker) {
    if (fetching_ >= most_fetching) return false;
    makes_room_next_ = !makes_room_next_;
    const auto fetches = [&]() REQUIRES(mutex_) {
        const auto page = next_of(wanted_);
        if (page) perform_fetch(*page, worker);
        return page.has_value();
    };
    if (!makes_room_next_ && fetches()) return true;
    if (!rooms_.empty()) return perform_room(*rooms_.pop()), true;
    if (!of_clones_.empty()) {
        const CloneRequest next = of_clones_.front();
        of_clones_.pop_front();
        return perform_for_clone(next, worker), true;
    }
    return fetches();
}

bool OriginCache::work_ahead(Worker& worker) {
    if (const auto page = next_of(ahead_)) return perform_fetch(*page, worker), true;
    if (writes_now()) {
        const auto page = written_.next_by_age([this](std::uint64_t each)
                                                   REQUIRES(mutex_) { return may_write(each); });
        if (page) return perform_round(*page, worker), true;
    }
    if (perform_prefetch(worker)) return true;
    if (const auto page = next_of_all()) return perform_fetch(*page, worker), true;
    return false;
}

void OriginCache::wait_for_work() {
    const auto oldest = written_.oldest();
    if (!oldest || options_.writes != Writes::back || is_paused_) return changed_.wait(mutex_);
    const auto due = has_to_write() ? retry_at_ : std::max(*oldest + options_.max_age, retry_at_);
    const auto now = Clock::now();
    if (due <= now && awaits_pages_) return changed_.wait(mutex_);  // see end_pages()
    bool has_waited = false;
    changed_.wait_until(mutex_, std::max(due, now + retry_interval),
                        [&] { return std::exchange(has_waited, true); });
}

bool OriginCache::is_used(std::uint64_t page, bool also_waiting) const {
    return std::ranges::any_of(used_, [&](const Used& each) {
        return (also_waiting || !each.is_waiting) && each.pages.overlaps({page, page + 1});
    });
}

bool OriginCache::may_fetch(std::uint64_t page) {
    if (!is_used(page, true)) return true;
    awaits_pages_ = true;
    return false;
}

bool OriginCache::may_write(std::uint64_t page) {
    // A zero that waits for a fetch must not prevent what makes room for it.
    if (!is_used(page, starving_ == 0)) return true;
    awaits_pages_ = true;
    return false;
}

void OriginCache::end_pages(const Worker& worker) {
    used(worker) = {};
    if (!std::exchange(awaits_pages_, false)) return;
    pages_ended_.notify_all();
    changed_.notify_all();
}

void OriginCache::log_error(const char* what, const std::string& why) noexcept {
    {
        const Lock lock(mutex_);
        if (std::exchange(has_failed_, true)) return;
    }
    log_line(what, why);
}

void OriginCache::log_loss(const std::string& why) noexcept { log_line("lacks data", why); }

void OriginCache::log_line(const char* what, const std::string& why) noexcept {
    log_if_possible([&] {
        LogLine(spdlog::level::err)
            .with("export", options_.export_name)
            .with("origin", origin_->name())
            .log("export '{}': its origin {}: {}", options_.export_name, what, why);
    });
}

}  // namespace gpunbd::storage
