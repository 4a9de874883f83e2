// Counts the connections of an export and keeps its rate limits, for all clients together and for
// each peer. It survives reloads, as clients do.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config/options.hpp"
#include "server/exports/token_bucket.hpp"

namespace gpunbd::server {

// The rate limits of a connection, in the order in which they are checked: a client over its own
// limit takes nothing of the shared one. Null: no limit.
struct RateLimits {
    std::shared_ptr<TokenBucket> of_peer;
    std::shared_ptr<TokenBucket> of_export;
    bool operator==(const RateLimits&) const = default;
};

class ExportUse : public std::enable_shared_from_this<ExportUse> {
 public:
    // Held by one connection while it uses the export. Any thread.
    class Lease {
     public:
        Lease(std::shared_ptr<ExportUse> use, std::string peer)
            : use_(std::move(use)), peer_(std::move(peer)) {}
        ~Lease() {
            if (counted_) use_->leave(peer_);
        }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;

        // The limits of the current configuration.
        RateLimits rates() const { return use_->rates(peer_); }
        bool closed() const { return use_->closed_; }
        bool requires_current_size() const { return use_->requires_current_size_; }

     private:
        friend class ExportUse;
        const std::shared_ptr<ExportUse> use_;
        const std::string peer_;
        bool counted_ = false;
    };

    // Applies a configuration. Existing connections stay, even if they exceed it. Changed rates
    // start with a full burst.
    void apply(const config::ExportOptions& options);

    struct Answer {
        std::unique_ptr<Lease> lease;  // null: refused
        std::string refusal;           // for the client
    };
    // `peer`: its peer_key().
    Answer enter(const std::string& peer);
    // The export is being removed: refuses further connections. Returns false, and changes nothing,
    // if there are connections; `forced`: closes it in any case.
    bool close(bool forced);
    void reopen();
    // Whether clients that have an earlier size are disconnected.
    void require_current_size(bool required) { requires_current_size_ = required; }
    std::uint32_t connections();

 private:
    struct PeerUse {
        std::uint32_t connections = 0;
        std::shared_ptr<TokenBucket> bucket;
    };
    using Peers = std::map<std::string, PeerUse>;

    void leave(const std::string& peer);
    RateLimits rates(const std::string& peer);
    // A peer without connections is remembered while its bucket is not full, or it could reconnect
    // for a full one.
    void forget_idle_peers();

    std::mutex mutex_;
    std::atomic<bool> requires_current_size_{false};
    std::atomic<bool> closed_{false};    // changed with the lock held
    std::uint32_t max_connections_ = 0;  // 0: no limit
    std::uint32_t max_per_peer_ = 0;
    config::Rates rates_;
    config::Rates rates_per_peer_;
    std::uint32_t connections_ = 0;
    std::shared_ptr<TokenBucket> bucket_;
    Peers peers_;
    std::size_t peers_before_cleanup_ = 0;  // number of peers at which idle ones are forgotten
};

}  // namespace gpunbd::server
