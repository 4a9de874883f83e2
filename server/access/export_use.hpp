// Who uses an export now, and how much of it: its connections are counted, and its rates are kept,
// for all clients together and for each peer. It outlives a reload, as the clients do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config/options.hpp"
#include "server/access/token_bucket.hpp"

namespace gpunbd::server {

// The rates that a connection is held to, in the order in which they are asked: who is over its own
// takes nothing of what it shares with others. Null: no limit.
struct RateLimits {
    std::shared_ptr<TokenBucket> of_peer;
    std::shared_ptr<TokenBucket> of_export;
    bool operator==(const RateLimits&) const = default;
};

class ExportUse : public std::enable_shared_from_this<ExportUse> {
 public:
    // One connection's, until it goes. Any thread.
    class Place {
     public:
        Place(std::shared_ptr<ExportUse> use, std::string peer)
            : use_(std::move(use)), peer_(std::move(peer)) {}
        ~Place() {
            if (counted_) use_->leave(peer_);
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;

        // As the configuration is now.
        RateLimits rates() const { return use_->rates(peer_); }

     private:
        friend class ExportUse;
        const std::shared_ptr<ExportUse> use_;
        const std::string peer_;
        bool counted_ = false;
    };

    // What the configuration says from now on. Those who are there stay, however many; rates that
    // have changed begin anew.
    void apply(const config::ExportOptions& options);

    struct Answer {
        std::unique_ptr<Place> place;  // null: refused
        std::string refusal;           // why, for the client
    };
    // `peer`: as peer_key() tells one from another.
    Answer enter(const std::string& peer);
    std::uint32_t connections();

 private:
    struct PeerUse {
        std::uint32_t connections = 0;
        std::shared_ptr<TokenBucket> bucket;
    };
    using Peers = std::map<std::string, PeerUse>;

    void leave(const std::string& peer);
    RateLimits rates(const std::string& peer);
    // Somebody who has gone is remembered while it owes something, or it would come back for more.
    void forget_who_owes_nothing();

    std::mutex mutex_;
    std::uint32_t max_connections_ = 0;  // 0: no limit
    std::uint32_t max_per_peer_ = 0;
    config::Rates rates_;
    config::Rates rates_per_peer_;
    std::uint32_t connections_ = 0;
    std::shared_ptr<TokenBucket> bucket_;
    Peers peers_;
    std::size_t look_at_ = 0;  // so many peers: time to forget some
};

}  // namespace gpunbd::server
