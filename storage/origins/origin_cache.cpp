#include "storage/origins/origin_cache.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/devices/page_completions.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t threads_of_a_cache = 4;                    // reads of the origin at once
constexpr std::uint64_t longest_window = std::uint64_t{32} << 20;  // bytes that are read ahead
constexpr std::uint64_t shortest_window = 2;                       // pages
// Pages in use that the clock passes before it takes the first of them. Clients wait meanwhile.
constexpr std::size_t longest_search = 1024;
// A page that was dropped is free once the clients that were reading it have gone on.
constexpr std::chrono::milliseconds retry_interval{1};
constexpr std::chrono::seconds patience{10};

}  // namespace

// --- the file ------------------------------------------------------------------------------------

OriginFile::OriginFile(std::string path, std::uint64_t page_size)
    : path_(std::move(path)), page_size_(page_size), file_(path_) {}

std::variant<std::unique_ptr<OriginFile>, std::string> OriginFile::open(const std::string& path,
                                                                        Kind kind,
                                                                        std::uint64_t page_size) {
    std::unique_ptr<OriginFile> out(new OriginFile(path, page_size));
    ImageFile& file = out->file_;
    if (auto why = file.open()) return *std::move(why);
    if (file.is_block_device() != (kind == Kind::block_device)) {
        return file.problem(file.is_block_device() ? "it is a block device; write device: before it"
                                                   : "it is a file; write file: before it");
    }
    if (file.compressed()) {
        return file.problem("it is compressed; decompress it with zstd -d, and use the result");
    }
    if (auto why = file.claim()) return *std::move(why);
    out->data_.resize((file.size() + page_size - 1) / page_size);
    std::uint64_t at = 0;
    while (const auto data = file.next_data(at)) {
        const std::uint64_t end = (data->end + page_size - 1) / page_size;
        for (std::uint64_t page = data->begin / page_size; page != end; ++page) {
            out->data_[page] = true;
        }
        at = data->end;
    }
    return out;
}

std::optional<std::string> OriginFile::read(std::uint64_t offset, std::span<std::byte> to) const {
    if (auto why = file_.read(offset, to)) return why;
    // Some of the pages in memory may be older.
    if (file_.changed()) {
        return file_.problem("another program has written to it; restart the server");
    }
    return {};
}

// --- requests ------------------------------------------------------------------------------------

OriginCache::OriginCache(Volume& volume, std::unique_ptr<const OriginFile> origin, Options options)
    : volume_(volume), origin_(std::move(origin)), options_(std::move(options)) {
    const std::uint64_t pages = volume_.pool(0).memory().slabs().config().pages;
    longest_ = std::min(longest_window / volume_.page_size(), pages / threads_of_a_cache);
    if (options_.reads_ahead == Ahead::all) {
        const Lock lock(mutex_);
        end_of_all_ = volume_.pages();
    }
    const SignalsBlocked blocked;
    try {
        for (std::uint32_t i = 0; i != threads_of_a_cache; ++i) {
            threads_.emplace_back([this] { run(); });
            ::pthread_setname_np(threads_.back().native_handle(), "origin");
        }
    } catch (...) {
        stop();
        throw;
    }
}

OriginCache::~OriginCache() { stop(); }

void OriginCache::stop() {
    {
        const Lock lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    const Lock lock(mutex_);
    for ([[maybe_unused]] const auto& each : fetches_) {
        GPUNBD_ASSERT(each.second.waiters.empty(),
                      "the requests for pages are answered before a cache ends");
    }
}

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
        wanted.waiters.push(request);
        if (options_.reads_ahead != Ahead::nothing) follow(page);
    } catch (const std::exception&) {  // no memory
        PageRequests refused;
        refused.push(request);
        complete(refused, Status::io_error);
        return;
    }
    changed_.notify_all();
}

// A client waits for the page.
void OriginCache::follow(std::uint64_t page) noexcept {
    if (longest_ < shortest_window) return;
    const auto continues = [page](const Stream& each) {
        return page <= each.next && page + each.window / 2 >= each.next;
    };
    const auto found = std::ranges::find_if(streams_, continues);
    if (found == streams_.end()) {
        streams_[next_stream_++ % streams_.size()] = {.next = page + 1};
        return;
    }
    found->window = std::clamp(found->window * 2, shortest_window, longest_);
    const std::uint64_t end =
        std::min(std::max(found->next, page + 1) + found->window, std::uint64_t{volume_.pages()});
    for (found->next = std::max(found->next, page + 1); found->next < end; ++found->next) {
        if (ahead_.size() >= longest_ * streams_.size()) return;
        if (!has(found->next) || volume_.mapped(found->next)) continue;
        try {
            if (fetches_.contains(found->next)) continue;
            ahead_.push_back(found->next);
            fetches_.try_emplace(found->next, Fetch{.is_ahead = true});
        } catch (const std::exception&) {  // no memory; the client's request will find that too
            return;
        }
    }
}

std::optional<std::uint64_t> OriginCache::next() {
    for (std::deque<std::uint64_t>* const queue : {&wanted_, &ahead_}) {
        while (!queue->empty()) {
            const std::uint64_t page = queue->front();
            queue->pop_front();
            const auto found = fetches_.find(page);
            if (found == fetches_.end() || found->second.is_running) continue;
            found->second.is_running = true;
            return page;
        }
    }
    while (next_of_all_ < end_of_all_) {
        const std::uint64_t page = next_of_all_++;
        if (!has(page) || volume_.mapped(page)) continue;
        const auto [found, is_new] =
            fetches_.try_emplace(page, Fetch{.is_ahead = true, .fills = true});
        if (!is_new) continue;
        found->second.is_running = true;
        return page;
    }
    return std::nullopt;
}

void OriginCache::run() noexcept {
    SlabCopier copier;
    const Lock lock(mutex_);
    while (!is_stopping_) {
        std::optional<std::uint64_t> page;
        try {
            page = next();
        } catch (const std::exception&) {  // no memory to read ahead of clients
            next_of_all_ = end_of_all_;
        }
        if (page) {
            perform(*page, copier);
        } else {
            changed_.wait(mutex_);
        }
    }
}

void OriginCache::perform(std::uint64_t page, SlabCopier& copier) {
    Fetch& fetch = fetches_.at(page);  // no other thread removes it
    Status status = Status::ok;
    do {
        const Unlock unlock(mutex_);
        status = load(page, copier);
    } while (status == Status::no_space && fetch.is_wanted && !is_stopping_);
    const PageRequests waiters = std::exchange(fetch.waiters, PageRequests{});
    if (status == Status::no_space) {
        end_of_all_ = next_of_all_;
    } else {
        (status != Status::ok ? counters_.errors
         : fetch.is_ahead     ? counters_.prefetched
                              : counters_.fetched)
            .add();
    }
    fetches_.erase(page);
    const Unlock unlock(mutex_);
    complete(waiters, status);
}

// --- pages ---------------------------------------------------------------------------------------

Status OriginCache::load(std::uint64_t page, SlabCopier& copier) noexcept {
    PageRef target;
    try {
        if (volume_.mapped(page)) return Status::ok;
        Status status = take(page, target);
        if (status != Status::ok) return status;
        status = read(page, target, copier);
        if (status != Status::ok) {
            PagePool::give_up(std::move(target));
            return status;
        }
        remember(target.index(), page);
        const bool is_mapped = volume_.replace(page, target);
        GPUNBD_ASSERT(is_mapped, "a volume with a source is not cloned");
        return is_mapped ? Status::ok : Status::io_error;
    } catch (const std::exception& error) {
        if (!target.hole()) PagePool::give_up(std::move(target));
        log_error(error.what());
        return Status::io_error;
    }
}

Status OriginCache::take(std::uint64_t page, PageRef& out) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
        const Status status = volume_.take_page(page, out);
        if (status != Status::no_space) return status;
        if (only_fills(page)) return status;
        if (evict_one()) continue;
        const bool is_late = std::chrono::steady_clock::now() > deadline;
        if (is_late || volume_.mapped_bytes() == 0) {
            log_error(is_late ? "no page of its cache becomes free; give it a larger cache"
                              : "its device has no memory for a page");
            return Status::io_error;
        }
        std::this_thread::sleep_for(retry_interval);
    }
}

bool OriginCache::only_fills(std::uint64_t page) {
    const Lock lock(mutex_);
    const Fetch& fetch = fetches_.at(page);
    return is_stopping_ || (fetch.fills && !fetch.is_wanted);
}

Status OriginCache::read(std::uint64_t page, const PageRef& to, SlabCopier& copier) {
    if (to.device().failed()) return Status::io_error;
    const std::uint64_t begin = page * volume_.page_size();
    const std::uint64_t length = std::min(volume_.page_size(), origin_->size() - begin);
    const PoolSlabs& slabs = to.owner().slabs();
    const Status status = copier.fill({.device = to.device(),
                                       .slab = to.slab(),
                                       .offset = slabs.numbers().offset_in_slab(to.index())},
                                      length, [&](std::uint64_t done, std::span<std::byte> memory) {
                                          const auto why = origin_->read(begin + done, memory);
                                          if (!why) return Status::ok;
                                          log_error(*why);
                                          return Status::io_error;
                                      });
    if (status == Status::ok) {
        const Lock lock(mutex_);
        has_failed_ = false;
    }
    return status;
}

// The use by the client that waits for the page is no reason to keep it.
void OriginCache::remember(PageIndex index, std::uint64_t page) {
    const std::uint32_t uses = volume_.pool(0).memory().pages().uses(index);
    const Lock lock(mutex_);
    if (index >= cached_.size()) cached_.resize(index + std::size_t{1});
    cached_[index] = {.number = page, .uses = uses + (fetches_.at(page).is_wanted ? 1 : 0)};
}

bool OriginCache::evict_one() {
    std::optional<std::uint64_t> page;
    {
        const Lock lock(mutex_);
        const PageStates& states = volume_.pool(0).memory().pages();
        std::size_t used = 0;
        for (std::size_t left = cached_.size(); left != 0 && used != longest_search; --left) {
            const std::size_t index = hand_++ % cached_.size();
            Cached& cached = cached_[index];
            const PageEntry entry = volume_.slot(cached.number).load();
            // A page that is pinned would not make room now.
            const bool is_here = entry.is_mapped() && entry.page() == index;
            if (!is_here || states.is_pinned(entry.page())) continue;
            const std::uint32_t uses = states.uses(entry.page());
            const bool is_unused = uses == cached.uses;
            if (is_unused || !page) page = cached.number;
            if (is_unused) break;
            cached.uses = uses;
            ++used;
        }
    }
    if (page) drop(*page);
    return page.has_value();
}

void OriginCache::drop(std::uint64_t page) {
    volume_.unmap(page);
    const Lock lock(mutex_);
    counters_.evicted.add();
}

void OriginCache::log_error(const std::string& why) noexcept {
    {
        const Lock lock(mutex_);
        if (std::exchange(has_failed_, true)) return;
    }
    log_if_possible([&] {
        LogLine(spdlog::level::err)
            .with("export", options_.export_name)
            .with("file", origin_->path())
            .log("export '{}': its origin cannot be read: {}", options_.export_name, why);
    });
}

}  // namespace gpunbd::storage
