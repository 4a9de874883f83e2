#include "server/exports/export_use.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using std::chrono::nanoseconds;

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t ns_per_second = 1'000'000'000;
constexpr nanoseconds least_burst = std::chrono::milliseconds(10);
// Bounds times to 36 years from the epoch, so that sums and differences of two times and of time
// points do not overflow.
constexpr std::int64_t farthest = std::int64_t{1} << 60;

std::int64_t within_range(std::int64_t time) { return std::clamp(time, -farthest, farthest); }

std::int64_t burst_of(std::chrono::seconds burst) {
    const auto longest = std::chrono::duration_cast<std::chrono::seconds>(nanoseconds(farthest));
    return std::max(nanoseconds(std::clamp(burst, std::chrono::seconds(0), longest)), least_burst)
        .count();
}

constexpr std::size_t few_peers = 64;  // below this, idle peers are not forgotten

std::shared_ptr<TokenBucket> bucket_for(const config::Rates& rates) {
    if (!rates.any()) return nullptr;
    return std::make_shared<TokenBucket>(rates, TokenBucket::Clock::now());
}

}  // namespace

TokenBucket::TokenBucket(const config::Rates& rates, Time now)
    : epoch_(now), burst_(burst_of(rates.burst)) {
    bytes_.per_second = rates.bytes_per_second.value_or(0);
    requests_.per_second = rates.iops.value_or(0);
    bytes_.paid_until = requests_.paid_until = -burst_;
}

TokenBucket::Time TokenBucket::take(std::uint64_t bytes, Time now) {
    const std::int64_t at = since_epoch(now);
    const Lock lock(mutex_);
    return epoch_ +
           nanoseconds(std::max(bytes_.take(bytes, at, burst_), requests_.take(1, at, burst_)));
}

void TokenBucket::give_back(std::uint64_t bytes) {
    const Lock lock(mutex_);
    bytes_.give_back(bytes);
    requests_.give_back(1);
}

bool TokenBucket::full(Time now) const {
    const std::int64_t unspent = since_epoch(now) - burst_;
    const Lock lock(mutex_);
    return bytes_.paid_until <= unspent && requests_.paid_until <= unspent;
}

std::int64_t TokenBucket::since_epoch(Time time) const {
    constexpr nanoseconds range(farthest);
    return nanoseconds(std::clamp(time, epoch_ - range, epoch_ + range) - epoch_).count();
}

// A request is due once the bucket holds its tokens, or is full.
std::int64_t TokenBucket::Gauge::take(std::uint64_t amount, std::int64_t now, std::int64_t burst) {
    if (per_second == 0) return now;
    GPUNBD_ASSERT(burst > 0 && rest < per_second, "a bucket holds tokens and less than one rest");
    paid_until = std::max(paid_until, now - burst);
    const Wide cost = Wide{amount} * ns_per_second + rest;
    const auto whole = static_cast<std::int64_t>(std::min<Wide>(cost / per_second, farthest));
    rest = static_cast<std::uint64_t>(cost % per_second);
    const std::int64_t goes = paid_until + std::min(whole, burst);
    paid_until = within_range(paid_until + whole);
    return std::max(goes, now);
}

void TokenBucket::Gauge::give_back(std::uint64_t amount) {
    if (per_second == 0) return;
    const Wide cost = Wide{amount} * ns_per_second / per_second;
    paid_until =
        within_range(paid_until - static_cast<std::int64_t>(std::min<Wide>(cost, farthest)));
}

void ExportUse::apply(const config::ExportOptions& options) {
    const Lock lock(mutex_);
    name_ = options.name;
    max_connections_ = options.max_connections.value_or(0);
    max_per_peer_ = options.max_connections_per_peer.value_or(0);
    if (rates_ != options.rates) {
        bucket_ = bucket_for(options.rates);
        rates_ = options.rates;
    }
    if (rates_per_peer_ != options.rates_per_peer) {
        for (auto& [peer, use] : peers_) use.bucket = bucket_for(options.rates_per_peer);
        rates_per_peer_ = options.rates_per_peer;
    }
}

ExportUse::Answer ExportUse::enter(const std::string& peer) {
    // Allocated first, so that a bad_alloc changes nothing.
    auto lease = std::make_unique<Lease>(shared_from_this(), peer);
    const Lock lock(mutex_);
    if (!closed_.empty()) return {nullptr, closed_.front().text};
    if (max_connections_ != 0 && connections_ >= max_connections_) {
        return {nullptr, fmt::format("the export has {} connection{}, which is its limit",
                                     connections_, connections_ == 1 ? "" : "s")};
    }
    if (peers_.size() >= std::max(peers_before_cleanup_, few_peers)) forget_idle_peers();
    const auto [at, is_new] = peers_.try_emplace(peer);
    PeerUse& use = at->second;
    if (max_per_peer_ != 0 && use.connections >= max_per_peer_) {
        return {nullptr,
                fmt::format("this client has {} connection{} to the export, which is its limit",
                            use.connections, use.connections == 1 ? "" : "s")};
    }
    if (is_new) {
        try {
            use.bucket = bucket_for(rates_per_peer_);
        } catch (...) {
            peers_.erase(at);
            throw;
        }
    }
    GPUNBD_ASSERT(use.connections <= connections_, "connections of a peer count for the export");
    ++use.connections;
    ++connections_;
    lease->counted_ = true;
    return {std::move(lease), {}};
}

ExportUse::Closure::~Closure() {
    if (!use_) return;
    const Lock lock(use_->mutex_);
    GPUNBD_ASSERT(!use_->closed_.empty(), "an export is closed as long as a closure exists");
    use_->closed_.erase(reason_);
}

ExportUse::Closed ExportUse::close(std::string reason, bool forced) {
    const Lock lock(mutex_);
    if (!closed_.empty()) return {nullptr, closed_.front().text + "; try again later"};
    if (connections_ != 0 && !forced) {
        return {
            nullptr,
            fmt::format("{} client{} connected", connections_, connections_ == 1 ? " is" : "s are"),
            connections_};
    }
    return {closed_for(std::move(reason), forced), {}};
}

std::shared_ptr<ExportUse::Closure> ExportUse::close_to_others(std::string reason) {
    const Lock lock(mutex_);
    return closed_for(std::move(reason), false);
}

std::shared_ptr<ExportUse::Closure> ExportUse::closed_for(std::string reason, bool disconnects) {
    std::list<Closure::Reason> one;
    one.push_back({std::move(reason), disconnects});
    std::shared_ptr<Closure> closure(new Closure(nullptr));
    closure->reason_ = one.begin();
    closed_.splice(closed_.end(), one);
    closure->use_ = shared_from_this();
    return closure;
}

std::string ExportUse::disconnected() {
    const Lock lock(mutex_);
    for (const Closure::Reason& each : closed_) {
        if (each.disconnects) return each.text;
    }
    return {};
}

std::string ExportUse::name() {
    const Lock lock(mutex_);
    return name_;
}

std::string ExportUse::why_closed() {
    const Lock lock(mutex_);
    return closed_.empty() ? std::string() : closed_.front().text + "; try again later";
}

std::uint32_t ExportUse::connections() {
    const Lock lock(mutex_);
    return connections_;
}

void ExportUse::leave(const std::string& peer) {
    const Lock lock(mutex_);
    const auto at = peers_.find(peer);
    GPUNBD_ASSERT(connections_ != 0 && at != peers_.end() && at->second.connections != 0,
                  "a connection that leaves an export has entered it");
    --connections_;
    if (--at->second.connections == 0 && !at->second.bucket) peers_.erase(at);
}

RateLimits ExportUse::rates(const std::string& peer) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(peers_.contains(peer), "a peer is remembered while it has a lease");
    return {.of_peer = peers_.find(peer)->second.bucket, .of_export = bucket_};
}

void ExportUse::forget_idle_peers() {
    const auto now = TokenBucket::Clock::now();
    std::erase_if(peers_, [now](const auto& each) {
        const PeerUse& use = each.second;
        return use.connections == 0 && (!use.bucket || use.bucket->full(now));
    });
    peers_before_cleanup_ = 2 * peers_.size();
}

}  // namespace gpunbd::server
