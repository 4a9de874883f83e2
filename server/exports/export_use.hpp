#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "config/options.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// A token bucket with credit. A request that needs more tokens than the bucket has gets the time at
// which it is due. So waiting requests proceed in order of arrival on any thread, and no request
// has to wake another.
class TokenBucket {
 public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    // Starts full. A `burst` of 0 means 10 ms, or a late timer would lose a part of the rate.
    TokenBucket(const config::Rates& rates, Time now);
    TokenBucket(const TokenBucket&) = delete;
    TokenBucket& operator=(const TokenBucket&) = delete;

    // Takes the tokens of one request of `bytes` and returns when it is due; not after `now` means
    // at once. In any time t, at most rate * t plus the burst passes; a larger request also passes,
    // and those behind it wait longer. Any thread.
    Time take(std::uint64_t bytes, Time now);
    // Returns the tokens of a request that will not execute.
    void give_back(std::uint64_t bytes);
    // The bucket is as full as a new one.
    bool full(Time now) const;

 private:
    // Times are nanoseconds since epoch_.
    struct Gauge {
        std::uint64_t per_second = 0;  // 0: no limit
        std::int64_t paid_until = 0;   // when all tokens taken have been refilled
        std::uint64_t rest = 0;        // its fraction, in 1/per_second ns

        std::int64_t take(std::uint64_t amount, std::int64_t now, std::int64_t burst);
        void give_back(std::uint64_t amount);
    };
    std::int64_t since_epoch(Time time) const;

    const Time epoch_;
    const std::int64_t burst_;  // ns
    mutable Mutex mutex_;
    Gauge bytes_ GUARDED_BY(mutex_);
    Gauge requests_ GUARDED_BY(mutex_);
};

// The rate limits of a connection, in the order in which they are checked: a client over its own
// limit takes nothing of the shared one. Null: no limit.
struct RateLimits {
    std::shared_ptr<TokenBucket> of_peer;
    std::shared_ptr<TokenBucket> of_export;
    bool operator==(const RateLimits&) const = default;
};

// Counts the connections of an export and keeps its rate limits, for all clients together and for
// each peer. It survives reloads, as clients do.
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
        // An owner of the export disconnects its clients, for this reason. Empty: none does.
        std::string disconnected() const { return use_->disconnected(); }
        // The name of the export, which may have been renamed since the client opened it.
        std::string export_name() const { return use_->name(); }
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
    // Keeps further connections out until it is destroyed, by any thread. The export is open when
    // all closures are gone.
    class Closure {
     public:
        ~Closure();
        Closure(const Closure&) = delete;
        Closure& operator=(const Closure&) = delete;

        // The export stays closed for good.
        void make_final() { use_.reset(); }

     private:
        friend class ExportUse;
        struct Reason {
            std::string text;
            bool disconnects = false;
        };
        explicit Closure(std::shared_ptr<ExportUse> use) : use_(std::move(use)) {}

        std::shared_ptr<ExportUse> use_;
        std::list<Reason>::iterator reason_;
    };
    struct Closed {
        std::shared_ptr<Closure>
            closure;                    // null: it has connections, or is closed by another owner
        std::string why_not;            // for administrators
        std::uint32_t connections = 0;  // if they are the reason
    };
    // For an owner that needs the export for itself. `reason`: for clients, such as "the export is
    // being removed". `forced`: the connections that there are do not prevent it, and end.
    Closed close(std::string reason, bool forced = false);
    // For new contents, whoever else has closed the export, or is connected to earlier contents.
    std::shared_ptr<Closure> close_to_others(std::string reason);
    // Why the export is closed, for administrators; empty: it is open.
    std::string why_closed();
    // Whether clients that have an earlier size are disconnected.
    void require_current_size(bool required) { requires_current_size_ = required; }
    std::uint32_t connections();

 private:
    struct PeerUse {
        std::uint32_t connections = 0;
        std::shared_ptr<TokenBucket> bucket;
    };
    using Peers = std::map<std::string, PeerUse>;

    std::shared_ptr<Closure> closed_for(std::string reason, bool disconnects) REQUIRES(mutex_);
    void leave(const std::string& peer);
    std::string disconnected();
    std::string name();
    RateLimits rates(const std::string& peer);
    // A peer without connections is remembered while its bucket is not full, or it could reconnect
    // for a full one.
    void forget_idle_peers() REQUIRES(mutex_);

    Mutex mutex_;
    std::atomic<bool> requires_current_size_{false};
    std::string name_ GUARDED_BY(mutex_);                   // in the last apply()
    std::list<Closure::Reason> closed_ GUARDED_BY(mutex_);  // not empty: closed
    std::uint32_t max_connections_ GUARDED_BY(mutex_) = 0;  // 0: no limit
    std::uint32_t max_per_peer_ GUARDED_BY(mutex_) = 0;
    config::Rates rates_ GUARDED_BY(mutex_);
    config::Rates rates_per_peer_ GUARDED_BY(mutex_);
    std::uint32_t connections_ GUARDED_BY(mutex_) = 0;
    std::shared_ptr<TokenBucket> bucket_ GUARDED_BY(mutex_);
    Peers peers_ GUARDED_BY(mutex_);
    // The number of peers at which idle ones are forgotten.
    std::size_t peers_before_cleanup_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gpunbd::server
