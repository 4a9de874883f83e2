#include "server/exports/export_use.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t few_peers = 64;  // below this, idle peers are not forgotten

std::shared_ptr<TokenBucket> bucket_for(const config::Rates& rates) {
    if (!rates.any()) return nullptr;
    return std::make_shared<TokenBucket>(rates, TokenBucket::Clock::now());
}

}  // namespace

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
