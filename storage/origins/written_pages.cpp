#include "storage/origins/written_pages.hpp"

#include <algorithm>
#include <bit>

#include "storage/assertions/assert.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

WriteRecords::WriteRecords(const Volume& volume, KeptCache marks)
    : volume_(volume), marks_(marks), blocks_(volume.page_size() / block_size) {}

WriteRecords::~WriteRecords() {
    for ([[maybe_unused]] const Group& group : groups_) {
        const Lock lock(group.mutex);
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

void WrittenPages::end(std::uint64_t page, std::uint64_t offset, std::uint64_t length,
                       SourceRequest* waits, Clock::time_point now) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    end_in(group, page, offset, length, waits, now);
}

void WriteRecords::end_in(Group& group, std::uint64_t page, std::uint64_t offset,
                          std::uint64_t length, SourceRequest* waits, Clock::time_point now) {
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(record.writers != 0, "a write to a page ends once");
    GPUNBD_ASSERT(length != 0, "a write has bytes in each of its pages");
    --record.writers;
    if (record.unwritten.none()) record.since = now;
    const std::uint64_t first = offset / block_size;
    const std::uint64_t last = (offset + length - 1) / block_size;
    const std::uint64_t before = record.unwritten.count();
    record.unwritten.set(first, last - first + 1, true);
    const std::uint64_t added = record.unwritten.count() - before;
    if (added != 0) unwritten_.fetch_add(added);
    // A write that failed has changed nothing in parts without contents.
    if (marks_pages()) {
        const Parts changed = volume_.division().of(offset, length);
        marks_.add_unwritten(page, changed & ~volume_.missing_parts(page));
    }
    if (waits != nullptr) {
        GPUNBD_ASSERT(record.waiting.size() < record.waiting.capacity(),
                      "nothing is allocated when a write ends");
        record.waiting.push_back(waits);
        ++waits->pages_left;
    }
    enqueue(group, record);
}

void WrittenPages::cancel(std::uint64_t page) {
    Group& group = group_of(page);
    const Lock lock(group.mutex);
    Record& record = group.records.at(page);
    GPUNBD_ASSERT(record.writers != 0, "a write to a page ends once");
    --record.writers;
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
