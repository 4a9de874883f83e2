#include "server/admin/model/history.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gpunbd::server::admin {

namespace {

constexpr double ns_of_second = 1e9;

// The share of one of `count` intervals. The last one gets the remainder.
std::uint64_t part(std::uint64_t all, std::size_t which, std::size_t count) {
    return all / count + (which + 1 == count ? all % count : 0);
}

History::Direction part(const History::Direction& all, std::size_t which, std::size_t count) {
    History::Direction out = all;
    out.bytes = part(all.bytes, which, count);
    out.requests = static_cast<std::uint32_t>(part(all.requests, which, count));
    return out;
}

// Clocks may be set, and machines may sleep.
std::size_t seconds_between(double before, double now) {
    constexpr std::size_t most = History::coarse * History::max_coarse;
    if (before == 0) return 1;
    return static_cast<std::size_t>(
        std::clamp(std::round(now - before), 1.0, static_cast<double>(most)));
}

std::uint32_t narrow(std::uint64_t count) {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(count, std::numeric_limits<std::uint32_t>::max()));
}

std::uint64_t bytes_of(const History::Interval& interval) {
    return interval.read.bytes + interval.written.bytes;
}

}  // namespace

void History::sample(const Status& status) {
    const std::size_t seconds = seconds_between(last_, status.time);
    last_ = status.time;
    ++samples_;
    std::set<std::string_view> there;
    for (const ExportStatus& each : status.exports) there.insert(each.name);
    follow_names(status, there);
    for (const ExportStatus& each : status.exports) sample(each, seconds);
    std::erase_if(exports_, [&](const auto& entry) { return !there.contains(entry.first); });
    limit_exports();
}

void History::follow_names(const Status& status, const std::set<std::string_view>& there) {
    std::map<std::string, std::string> gone;  // names by the instances of their contents
    for (const auto& [name, entry] : exports_) {
        if (!there.contains(name) && !entry.instance.empty()) gone.emplace(entry.instance, name);
    }
    if (gone.empty()) return;
    for (const ExportStatus& each : status.exports) {
        const auto earlier = gone.find(each.instance);
        if (earlier == gone.end() || exports_.contains(each.name)) continue;
        auto node = exports_.extract(earlier->second);
        gone.erase(earlier);
        node.key() = each.name;
        exports_.insert(std::move(node));
    }
}

void History::sample(const ExportStatus& status, std::size_t seconds) {
    Counts now = counts_of(status);
    const auto [found, is_new] = exports_.try_emplace(status.name);
    Entry& entry = found->second;
    const bool another =
        entry.last.read.requests > now.read.requests ||
        entry.last.written.requests > now.written.requests;  // a new export of the same name
    if (is_new || another) {
        entry = {};
        entry.instance = status.instance;
        entry.last_coarse = now;
        entry.last = std::move(now);
        return;
    }
    // A late sample has missed seconds, of which the longest request of the minute is known.
    const bool is_late = seconds > 1 && status.longest.age < seconds;
    const Interval all = difference(
        entry.last, now, longest_of(is_late ? status.longest : status.last_second.longest));
    if (all.longest.duration > entry.longest.duration) entry.longest = all.longest;
    const bool used = all.read.requests != 0 || all.written.requests != 0 || bytes_of(all) != 0;
    if (used) entry.used_at = samples_;
    if (used && entry.fine.empty()) {
        append(entry.fine, {}, entry.age, max_fine);
        append(entry.coarse, {}, entry.age / coarse, max_coarse);
    }
    entry.age = std::min(entry.age + seconds, coarse * max_coarse);
    if (used || !entry.fine.empty()) append(entry.fine, all, seconds, max_fine);
    entry.since_coarse += seconds;
    if (entry.since_coarse >= coarse) {
        const std::size_t count = entry.since_coarse / coarse;
        if (!entry.fine.empty()) {
            append(entry.coarse, difference(entry.last_coarse, now, entry.longest), count,
                   max_coarse);
        }
        entry.longest = {};
        entry.since_coarse %= coarse;
        if (used || !entry.fine.empty()) entry.last_coarse = now;
    }
    if (used) {
        entry.last = std::move(now);
    } else if (samples_ - entry.used_at > coarse * max_coarse) {
        entry.fine = {};
        entry.coarse = {};
    }
}

// Drops the least recently used export first. Its history restarts with its next request.
void History::limit_exports() {
    for (;;) {
        std::size_t count = 0;
        Entry* oldest = nullptr;
        for (auto& [name, entry] : exports_) {
            if (entry.fine.empty()) continue;
            ++count;
            if (oldest == nullptr || entry.used_at < oldest->used_at) oldest = &entry;
        }
        if (count <= max_exports) return;
        oldest->fine = {};
        oldest->coarse = {};
        oldest->age = 0;
        oldest->last_coarse = oldest->last;
    }
}

std::optional<History::Series> History::of(std::string_view name, std::size_t seconds) const {
    const auto found = exports_.find(name);
    if (found == exports_.end()) return std::nullopt;
    const Entry& entry = found->second;
    Series out{.end = last_};
    const auto take = [&](const std::deque<Interval>& from, std::size_t most) {
        const auto count = static_cast<std::ptrdiff_t>(std::min(most, from.size()));
        out.intervals.assign(from.end() - count, from.end());
    };
    if (seconds <= max_fine) {
        take(entry.fine, seconds);
        return out;
    }
    out.step = coarse;
    out.end -= static_cast<double>(entry.since_coarse);
    take(entry.coarse, (seconds + coarse - 1) / coarse);
    return out;
}

void History::add_last_second(Status& status) const {
    for (ExportStatus& each : status.exports) {
        const auto found = exports_.find(each.name);
        if (found == exports_.end() || found->second.fine.empty()) continue;
        const Interval& last = found->second.fine.back();
        each.last_second.read_p50 = last.read.p50;
        each.last_second.read_p99 = last.read.p99;
        each.last_second.write_p50 = last.written.p50;
        each.last_second.write_p99 = last.written.p99;
    }
}

std::map<std::string, std::vector<std::uint64_t>> History::trends(std::size_t seconds) const {
    std::map<std::string, std::vector<std::uint64_t>> out;
    for (const auto& [name, entry] : exports_) {
        const auto count = static_cast<std::ptrdiff_t>(std::min(seconds, entry.fine.size()));
        std::vector<std::uint64_t> bytes;
        for (auto each = entry.fine.end() - count; each != entry.fine.end(); ++each) {
            bytes.push_back(bytes_of(*each));
        }
        const bool any = std::any_of(bytes.begin(), bytes.end(), [](auto one) { return one != 0; });
        if (any) out.emplace(name, std::move(bytes));
    }
    return out;
}

History::Counts History::counts_of(const ExportStatus& status) {
    Counts out;
    for (const RequestStatus& each : status.requests) {
        if (each.type != "read" && each.type != "write") continue;
        Counted& counted = each.type == "read" ? out.read : out.written;
        counted.requests = each.requests;
        counted.bytes = each.bytes;
        counted.latency = each.latency;
    }
    return out;
}

void History::append(std::deque<Interval>& to, const Interval& all, std::size_t count,
                     std::size_t most) {
    const std::size_t appended = std::min(count, most);  // the last ones
    for (std::size_t i = count - appended; i != count; ++i) {
        to.push_back({.read = part(all.read, i, count),
                      .written = part(all.written, i, count),
                      .longest = i + 1 == count ? all.longest : Longest{}});
    }
    while (to.size() > most) to.pop_front();
}

History::Longest History::longest_of(const LongestRequest& status) {
    Longest out{.duration = static_cast<float>(status.seconds)};
    for (std::size_t i = 0; i != std::min(out.waits.size(), status.waits.size()); ++i) {
        out.waits[i] = static_cast<float>(status.waits[i].seconds);
    }
    return out;
}

History::Interval History::difference(const Counts& before, const Counts& now,
                                      const Longest& longest) {
    return {.read = difference(before.read, now.read),
            .written = difference(before.written, now.written),
            .longest = longest};
}

History::Direction History::difference(const Counted& before, const Counted& now) {
    Direction out{.bytes = now.bytes - std::min(before.bytes, now.bytes),
                  .requests = narrow(now.requests - before.requests)};
    if (now.latency.sum() == before.latency.sum()) return out;
    const storage::Histogram latency = now.latency.since(before.latency);
    out.p50 = static_cast<float>(static_cast<double>(latency.quantile(0.5)) / ns_of_second);
    out.p99 = static_cast<float>(static_cast<double>(latency.quantile(0.99)) / ns_of_second);
    return out;
}

}  // namespace gpunbd::server::admin
