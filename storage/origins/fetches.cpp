#include "storage/origins/fetches.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t longest_window_bytes = std::uint64_t{32} << 20;  // that are read ahead
constexpr std::uint64_t shortest_window = 2;                             // parts
constexpr std::uint64_t pages_at_once = 1024;                            // with the mutex held
constexpr std::size_t most_prefetches = 1024;                            // ranges

}  // namespace

Fetches::~Fetches() {
    for ([[maybe_unused]] const auto& each : fetches_) {
        GPUNBD_ASSERT(each.second.waiters.empty() && each.second.later_waiters.empty(),
                      "the requests for pages are answered before a cache ends");
    }
}

void Fetches::add(PageRequest& request) {
    const std::uint64_t page = request.number;
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
    if (!wanted.is_running) wanted.parts |= request.parts;
    const bool is_late = (request.parts & ~wanted.parts) != 0;
    if (is_late) wanted.later_parts |= request.parts;
    (is_late ? wanted.later_waiters : wanted.waiters).push(request);
}

bool Fetches::are_wanted() const {
    return std::ranges::any_of(fetches_, [](const auto& each) { return each.second.is_wanted; });
}

// --- ahead of clients ----------------------------------------------------------------------------

std::uint64_t Fetches::longest_window() const {
    const PageDivision division = volume_.division();
    return std::min(longest_window_bytes / division.part_size(),
                    pages_in_memory_.load() * division.parts() / 4);
}

void Fetches::follow(std::uint64_t page, Parts parts) noexcept {
    const std::uint64_t longest = longest_window();
    if (longest < shortest_window) return;
    const std::uint64_t in_page = volume_.division().parts();
    const std::uint64_t first =
        page * in_page + static_cast<std::uint64_t>(std::countr_zero(parts));
    const std::uint64_t behind = page * in_page + static_cast<std::uint64_t>(std::bit_width(parts));
    const auto belongs = [first](const Stream& each) {
        return first <= each.next && first + each.window >= each.next;
    };
    const auto found = std::ranges::find_if(streams_, belongs);
    if (found == streams_.end()) {
        streams_[next_stream_++ % streams_.size()] = {.next = behind};
        return;
    }
    if (first + found->window / 2 < found->next) return;  // several requests at once
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

Parts Fetches::first_of(PartRange range) const {
    const std::uint64_t in_page = volume_.division().parts();
    const std::uint64_t first = range.begin % in_page;
    return PageDivision::run(first, std::min(range.end - range.begin, in_page - first));
}

Parts Fetches::absent(const Volume& volume, const PageBits& data, std::uint64_t page, Parts parts) {
    return data.test(page) ? parts & volume.missing_parts(page) : 0;
}

bool Fetches::joins(std::uint64_t page, Parts parts, bool joins_first) {
    const auto found = fetches_.find(page);
    if (found == fetches_.end()) return false;
    Fetch& fetch = found->second;
    const bool may_join = joins_first && !fetch.is_running;
    (may_join ? fetch.parts : fetch.later_parts) |= parts & ~fetch.parts;
    return true;
}

void Fetches::read_ahead(std::uint64_t page, Parts parts, bool joins_first) {
    const Parts absent = absent_of(page, parts);
    if (absent == 0 || joins(page, absent, joins_first)) return;
    ahead_.push_back(page);
    fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true});
}

bool Fetches::prefetch(std::uint64_t offset, std::uint64_t length) noexcept {
    if (length == 0 || prefetches_.size() == most_prefetches) return false;
    try {
        const std::uint64_t size = volume_.division().part_size();
        prefetches_.push_back({.begin = offset / size, .end = (offset + length - 1) / size + 1});
    } catch (const std::exception&) {  // no memory
        return false;
    }
    prefetches_left_ = pages_in_memory_.load();
    return true;
}

void Fetches::fill_memory() { end_of_all_ = volume_.pages(); }

// --- the next one --------------------------------------------------------------------------------

std::optional<std::uint64_t> Fetches::next_of(std::deque<std::uint64_t>& queue) {
    for (auto at = queue.begin(); at != queue.end();) {
        const auto found = fetches_.find(*at);
        if (found == fetches_.end() || found->second.is_running) {
            at = queue.erase(at);
        } else if (!busy_.may_begin(*at, true)) {
            ++at;
        } else {
            const std::uint64_t page = *at;
            queue.erase(at);
            return page;
        }
    }
    return std::nullopt;
}

Fetches::Next Fetches::next_prefetched() {
    if (prefetches_.empty()) return {};
    PartRange& range = prefetches_.front();
    const std::uint64_t in_page = volume_.division().parts();
    for (std::uint64_t passed = 0; range.begin < range.end;) {
        const std::uint64_t page = range.begin / in_page;
        if (passed++ == pages_at_once) return {.page = std::nullopt, .is_more = true};
        const Parts absent = absent_of(page, first_of(range));
        const bool begins = absent != 0 && !joins(page, absent, false);
        if (begins && !busy_.may_begin(page, true)) return {};
        if (begins) fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true});
        range.begin = (page + 1) * in_page;
        if (!begins) continue;
        if (!volume_.mapped(page) && --prefetches_left_ == 0) prefetches_.clear();
        return {.page = page};
    }
    prefetches_.pop_front();
    return {.page = std::nullopt, .is_more = true};
}

std::optional<std::uint64_t> Fetches::next_of_all() {
    for (; next_of_all_ < end_of_all_; ++next_of_all_) {
        const std::uint64_t page = next_of_all_;
        const Parts absent = absent_of(page, volume_.division().all());
        if (absent == 0 || joins(page, absent, false)) continue;
        if (!busy_.may_begin(page, true)) return std::nullopt;
        fetches_.try_emplace(page, Fetch{.parts = absent, .is_ahead = true, .fills = true});
        ++next_of_all_;
        return page;
    }
    return std::nullopt;
}

// --- one that is running -------------------------------------------------------------------------

Parts Fetches::begin(std::uint64_t page) {
    Fetch& fetch = fetches_.at(page);
    GPUNBD_ASSERT(!fetch.is_running, "a page is fetched once at a time");
    fetch.is_running = true;
    return fetch.parts;
}

PageRequests Fetches::take_waiters(std::uint64_t page) {
    Fetch& fetch = fetches_.at(page);
    GPUNBD_ASSERT(fetch.is_running, "requests wait for a fetch until it ends");
    fetch.parts = 0;
    return std::exchange(fetch.waiters, PageRequests{});
}

bool Fetches::end(std::uint64_t page) noexcept {
    const auto found = fetches_.find(page);
    Fetch& fetch = found->second;
    GPUNBD_ASSERT(fetch.is_running && fetch.waiters.empty(), "a fetch ends once");
    const PageRequests waiters = std::exchange(fetch.later_waiters, PageRequests{});
    const bool is_wanted = !waiters.empty();
    if (is_wanted || absent_of(page, fetch.later_parts) != 0) {
        try {
            (is_wanted ? wanted_ : ahead_).push_back(page);
            fetch = {.parts = fetch.later_parts,
                     .waiters = waiters,
                     .is_wanted = is_wanted,
                     .is_ahead = !is_wanted};
            return true;
        } catch (const std::exception&) {  // no memory
            complete(waiters, Status::io_error);
        }
    }
    fetches_.erase(found);
    return false;
}

}  // namespace gpunbd::storage
