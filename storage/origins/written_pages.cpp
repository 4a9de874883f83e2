#include "storage/origins/written_pages.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

WriteRecords::WriteRecords(const Volume& volume, KeptCache marks)
    : volume_(volume), marks_(marks), blocks_(volume.page_size() / block_size) {}

WriteRecords::~WriteRecords() {
    for ([[maybe_unused]] const Group& group : groups_) {
        const Lock lock(group.mutex);
        GPUNBD_ASSERT(group.fetches.empty(), "fetches end before the cache");
        for ([[maybe_unused]] const auto& each : group.records) {
            GPUNBD_ASSERT(each.second.writers == 0 && each.second.waiting.empty(),
                          "writes end before the cache");
        }
    }
}

bool WriteRecords::contains(std::uint64_t page) const {
    const Group& group = group_of(page);
    const Lock lock(group.mutex);
    return group.records.contains(page);
}

bool WrittenPages::is_unwritten(std::uint64_t page) const {
    const Group& group = group_of(page);
    const Lock lock(group.mutex);
    return group.records.at(page).unwritten.any();
}

bool WrittenPages::is_in_round(std::uint64_t page) const {
    const Group& group = group_of(page);
    const Lock lock(group.mutex);
    return group.records.at(page).is_in_round;
}

std::optional<WriteRecords::Clock::time_point> WriteRecords::oldest() const {
    std::optional<Clock::time_point> out;
    for (const Group& group : groups_) {
        const Lock lock(group.mutex);
        for (const Records* const list : {&group.urgent, &group.aged}) {
            if (list->empty()) continue;
            out = std::min(out.value_or(list->front().since), list->front().since);
        }
    }
    return out;
}

bool WriteRecords::begin(std::uint64_t page, bool may_add) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    if (!may_add && !group.records.contains(page)) return false;
    const auto [found, is_new] = group.records.try_emplace(page, blocks_);
    Record& record = found->second;
    try {
        const std::size_t writers = record.writers + std::size_t{1};
        record.waiting.reserve(record.waiting.size() + writers);
        record.waiting_in_round.reserve(record.waiting_in_round.size() + writers);
    } catch (...) {
        if (is_new) group.records.erase(found);
        throw;
    }
    if (is_new) size_.fetch_add(1);
    record.page = page;
    ++record.writers;
    return true;
}

PageRequests WriteRecords::end_in(Group& group, const End& end) {
    const std::uint64_t page = volume_.page_of(end.offset);
    const std::uint64_t offset = volume_.offset_in_page(end.offset);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(record.writers != 0, "a write to a page ends once");
    GPUNBD_ASSERT(end.length != 0 && end.filled <= end.length,
                  "a write has bytes in each of its pages");
    --record.writers;
    const PageRequests waiters = end_fill(record, end);  // before the marks
    if (record.unwritten.none()) record.since = end.now;
    const std::uint64_t first = offset / block_size;
    const std::uint64_t last = (offset + end.length - 1) / block_size;
    const std::uint64_t before = record.unwritten.count();
    record.unwritten.set(first, last - first + 1, true);
    const std::uint64_t added = record.unwritten.count() - before;
    if (added != 0) unwritten_.fetch_add(added);
    // A write that failed has filled nothing.
    if (marks_pages()) {
        const Parts changed = volume_.division().of(offset, end.length);
        marks_.add_unwritten(page, changed & ~volume_.missing_parts(page));
    }
    if (end.waits) {
        GPUNBD_ASSERT(record.waiting.size() < record.waiting.capacity(),
                      "nothing is allocated when a write ends");
        record.waiting.push_back(&end.write);
        ++end.write.pages_left;
    }
    enqueue(group, record);
    return waiters;
}

// --- parts without contents ----------------------------------------------------------------------

bool WriteRecords::begin_fill(std::uint64_t page, const PageRef& target, Parts parts,
                              const SourceRequest& write, PageRequest& request) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(record.writers != 0, "a write begins before it fills parts");
    const PageEntry entry = volume_.slot(page).load();
    const bool is_mapped = entry.is_mapped() && entry.page() == target.index() &&
                           &volume_.pool(entry.device()).memory() == &target.owner();
    if (!is_mapped) {
        complete(request, Status::ok);
        return false;
    }
    parts &= target.missing();
    Parts in_use = 0;
    for (const Fill& each : record.fills) {
        GPUNBD_ASSERT(each.write != &write, "a write fills all of its parts of a page at once");
        in_use |= each.parts;
    }
    for (const Group::Fetch& each : group.fetches) {
        if (each.page == page) in_use |= each.parts;
    }
    if ((parts & in_use) != 0) {
        record.fill_waiters.push(request);
        return false;
    }
    if (parts != 0) record.fills.push_back({.write = &write, .parts = parts});
    return true;
}

bool WriteRecords::cut_fill(std::uint64_t offset, const SourceRequest& write) {
    const std::uint64_t page = volume_.page_of(offset);
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    const auto found = group.records.find(page);
    if (found == group.records.end()) return true;  // the write has not begun there
    const Parts part = volume_.parts_at(offset, 1) & volume_.missing_parts(page);
    for (Fill& each : found->second.fills) {
        if (each.write != &write || (each.parts & part) == 0) continue;
        each.cut = offset;
        return each.has_rest;
    }
    return true;
}

PageRequests WriteRecords::end_fill(Record& record, const End& end) {
    const auto found = std::ranges::find(record.fills, &end.write, &Fill::write);
    if (found == record.fills.end()) return {};
    Parts parts = 0;
    if (end.filled != 0) parts = found->parts & volume_.whole_parts_at(end.offset, end.filled);
    record.fills.erase(found);
    if (parts != 0) {
        // Another one has replaced the page if it is not missing these parts.
        PageRef target = volume_.find_writable(record.page);
        if (!target.hole()) target.add_parts(parts);
    }
    return std::exchange(record.fill_waiters, PageRequests{});
}

PageRequests WriteRecords::void_fills(Group& group, std::uint64_t page) {
    const auto found = group.records.find(page);
    if (found == group.records.end()) return {};
    found->second.fills.clear();
    return std::exchange(found->second.fill_waiters, PageRequests{});
}

bool WriteRecords::wait_for_fills(PageRequest& request) {
    Group& group = group_of(request.number);
    const Lock lock(group.mutex);
    const auto found = group.records.find(request.number);
    if (found == group.records.end()) return false;
    Record& record = found->second;
    const auto is_wanted = [&](const Fill& each) { return (each.parts & request.parts) != 0; };
    if (std::ranges::none_of(record.fills, is_wanted)) return false;
    record.fill_waiters.push(request);
    return true;
}

WriteRecords::Fetching::Fetching(WriteRecords& records, std::uint64_t page, const PageRef& target,
                                 Parts parts)
    : records_(records), page_(page) {
    Group& group = records_.group_of(page);
    const Lock lock(group.mutex);
    parts_ = parts & target.missing();
    const Parts absent = parts_;
    const auto found = group.records.find(page);
    if (found != group.records.end()) {
        for (const Fill& each : found->second.fills) {
            if (each.cut && (absent & records_.volume_.parts_at(*each.cut, 1)) != 0) {
                cuts_.push_back(*each.cut);
            }
            parts_ &= ~each.parts;
        }
    }
    group.fetches.push_back({.page = page, .parts = parts_});
}

void WriteRecords::Fetching::cuts_are_filled() {
    Group& group = records_.group_of(page_);
    const Lock lock(group.mutex);
    const auto found = group.records.find(page_);
    if (found == group.records.end()) return;
    for (Fill& each : found->second.fills) {
        each.has_rest |= each.cut && std::ranges::find(cuts_, *each.cut) != cuts_.end();
    }
}

WriteRecords::Fetching::~Fetching() {
    PageRequests waiters;
    {
        Group& group = records_.group_of(page_);
        const Lock lock(group.mutex);
        const auto mine = std::ranges::find_if(group.fetches, [this](const Group::Fetch& each) {
            return each.page == page_ && each.parts == parts_;
        });
        GPUNBD_ASSERT(mine != group.fetches.end(), "a fetch ends once");
        group.fetches.erase(mine);
        const auto found = group.records.find(page_);
        if (found != group.records.end()) {
            waiters = std::exchange(found->second.fill_waiters, PageRequests{});
        }
    }
    complete(waiters, Status::ok);
}

// -------------------------------------------------------------------------------------------------

void WrittenPages::cancel(const End& end) {
    PageRequests waiters;
    {
        Group& group = group_of(volume_.page_of(end.offset));
        const Lock lock(group.mutex);
        Record& record = group.records.at(volume_.page_of(end.offset));
        GPUNBD_ASSERT(record.writers != 0 && end.filled == 0, "a write to a page ends once");
        --record.writers;
        waiters = end_fill(record, end);
    }
    complete(waiters, Status::ok);
}

void WrittenPages::wait_for_all(SourceRequest& flush) {
    for (Group& group : groups_) {
        const Lock lock(group.mutex);
        for (auto& [page, record] : group.records) {
            const bool is_unwritten = record.unwritten.any();
            if (!is_unwritten && !record.is_in_round) continue;
            auto& list = is_unwritten ? record.waiting : record.waiting_in_round;
            list.reserve(list.size() + record.writers + 1);
            list.push_back(&flush);
            ++flush.pages_left;
            enqueue(group, record);
        }
    }
}

void WrittenPages::urge(std::uint64_t page) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    record.is_urgent = true;
    enqueue(group, record);
}

void WriteRecords::enqueue(Group& group, Record& record) {
    Records* list = nullptr;
    if (!record.is_in_round && record.unwritten.any()) {
        list = record.is_urgent || !record.waiting.empty() ? &group.urgent : &group.aged;
    }
    if (list == record.list) return;  // its place there is that of its age
    record.hook.unlink();
    record.list = list;
    if (list != nullptr) list->push_back(record);
}

const WrittenPages::Blocks& WrittenPages::begin_round(std::uint64_t page) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(!record.is_in_round && record.waiting_in_round.empty() && record.in_round.none(),
                  "a page is written to the origin once at a time");
    record.is_in_round = true;
    record.is_urgent = false;
    record.in_round.swap(record.unwritten);
    record.waiting_in_round.swap(record.waiting);
    record.round_since = record.since;
    enqueue(group, record);
    return record.in_round;
}

WrittenPages::Requests WrittenPages::end_round(std::uint64_t page, Status status,
                                               AfterFailure after) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(record.is_in_round, "a round ends once");
    const std::uint64_t before = record.in_round.count() + record.unwritten.count();
    if (status != Status::ok && after == AfterFailure::keep) {
        record.unwritten |= record.in_round;
        record.since = record.round_since;
    }
    if (status != Status::ok && after == AfterFailure::give_up) record.is_spoiled = true;
    if (marks_pages()) {
        marks_.remove_unwritten(page, parts_of(record.in_round) & ~parts_of(record.unwritten));
    }
    record.in_round.reset();
    record.is_in_round = false;
    unwritten_.fetch_sub(before - record.unwritten.count());
    Requests done;
    for (SourceRequest* const each : record.waiting_in_round) complete_one(*each, status, done);
    record.waiting_in_round.clear();
    enqueue(group, record);
    return done;
}

WrittenPages::Requests WrittenPages::discard(std::uint64_t page, Status status) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(!record.is_in_round, "what is being written cannot be discarded");
    unwritten_.fetch_sub(record.unwritten.count());
    record.unwritten.reset();
    marks_.remove_unwritten(page, ~Parts{0});
    record.is_urgent = false;
    Requests done;
    for (SourceRequest* const each : record.waiting) complete_one(*each, status, done);
    record.waiting.clear();
    enqueue(group, record);
    return done;
}

void WrittenPages::adopt(std::uint64_t page, Parts unwritten, Clock::time_point since) {
    GPUNBD_ASSERT(unwritten != 0, "an earlier process marks what it has not written");
    Blocks blocks = blocks_of(unwritten);
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    const auto [found, is_new] = group.records.try_emplace(page, blocks_);
    GPUNBD_ASSERT(is_new, "a page is adopted before clients write to it");
    Record& record = found->second;
    record.page = page;
    record.since = since;
    record.unwritten.swap(blocks);
    size_.fetch_add(1);
    unwritten_.fetch_add(record.unwritten.count());
    enqueue(group, record);
}

void WrittenPages::stop_marking() {
    if (!marks_.is_kept() || !is_marking_.exchange(false)) return;
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        const Lock lock(group_of(page).mutex);
        marks_.remove_unwritten(page, ~Parts{0});
    }
}

WriteRecords::Blocks WriteRecords::blocks_of(Parts parts) const {
    const std::uint64_t in_part = volume_.division().part_size() / block_size;
    Blocks out(blocks_);
    for (; parts != 0; parts &= parts - 1) {
        out.set(static_cast<std::size_t>(std::countr_zero(parts)) * in_part, in_part, true);
    }
    return out;
}

Parts WriteRecords::parts_of(const Blocks& blocks) const {
    const std::uint64_t in_part = volume_.division().part_size() / block_size;
    Parts out = 0;
    for (auto at = blocks.find_first(); at != Blocks::npos;) {
        const std::uint64_t part = at / in_part;
        out |= PageDivision::run(part, 1);
        at = blocks.find_next((part + 1) * in_part - 1);
    }
    return out;
}

void WrittenPages::complete_one(SourceRequest& request, Status status, Requests& done) {
    GPUNBD_ASSERT(request.pages_left != 0, "a request waits once for each page");
    if (request.status == Status::ok) request.status = status;
    if (--request.pages_left == 0 && request.request != nullptr) done.push(request);
}

}  // namespace gpunbd::storage
