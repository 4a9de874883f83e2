#include "server/admin/history/history.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace gpunbd::server::admin {

namespace {

constexpr double ns_of_second = 1e9;  // of a second

// Of `all` the part of one of so many seconds; what does not divide is in the last one.
std::uint64_t part(std::uint64_t all, std::size_t second, std::size_t seconds) {
    return all / seconds + (second + 1 == seconds ? all % seconds : 0);
}

History::Direction part(const History::Direction& all, std::size_t second, std::size_t seconds) {
    History::Direction out = all;
    out.bytes = part(all.bytes, second, seconds);
    out.requests = part(all.requests, second, seconds);
    return out;
}

// Clocks are set, machines sleep.
std::size_t seconds_between(double before, double now) {
    if (before == 0) return 1;
    return static_cast<std::size_t>(
        std::clamp(std::round(now - before), 1.0, static_cast<double>(History::max_seconds)));
}

}  // namespace

void History::sample(const Status& status) {
    const std::size_t seconds = seconds_between(last_, status.time);
    last_ = status.time;
    std::set<std::string_view> there;
    for (const ExportStatus& each : status.exports) {
        there.insert(each.name);
        sample(each, status.time, seconds);
    }
    std::erase_if(exports_, [&](const auto& kept) { return !there.contains(kept.first); });
}

void History::sample(const ExportStatus& status, double time, std::size_t seconds) {
    const Counted read = counted(status, "read");
    const Counted written = counted(status, "write");
    const auto [found, is_new] = exports_.try_emplace(status.name);
    Kept& kept = found->second;
    const bool another = kept.read.requests > read.requests ||
                         kept.written.requests > written.requests;  // of the same name
    if (!is_new && another) kept = {};
    if (!is_new && !another) {
        const Direction reads = difference(kept.read, read);
        const Direction writes = difference(kept.written, written);
        auto& all = kept.history.seconds;
        for (std::size_t i = 0; i != seconds; ++i) {
            all.push_back({.read = part(reads, i, seconds), .written = part(writes, i, seconds)});
        }
        while (all.size() > max_seconds) all.pop_front();
    }
    kept.history.end = time;
    kept.read = read;
    kept.written = written;
}

const History::OfExport* History::of(std::string_view name) const {
    const auto found = exports_.find(name);
    return found == exports_.end() ? nullptr : &found->second.history;
}

History::Counted History::counted(const ExportStatus& status, std::string_view type) {
    const auto found = std::find_if(status.requests.begin(), status.requests.end(),
                                    [&](const RequestStatus& each) { return each.type == type; });
    if (found == status.requests.end()) return {};
    return {.requests = found->requests, .bytes = found->bytes, .latency = found->latency};
}

History::Direction History::difference(const Counted& before, const Counted& now) {
    const storage::Histogram latency = now.latency.since(before.latency);
    const bool any = latency.count() != 0;
    const auto quantile = [&](double share) {
        return any ? static_cast<double>(latency.quantile(share)) / ns_of_second : 0;
    };
    return {.bytes = now.bytes - before.bytes,
            .requests = now.requests - before.requests,
            .p50 = quantile(0.5),
            .p99 = quantile(0.99)};
}

}  // namespace gpunbd::server::admin
