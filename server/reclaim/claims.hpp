// What administrators have claimed of the memory that exports use on one device. Claims add up, and
// the end of one leaves the others in effect. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/admin/model/status.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

struct Claim {
    using Clock = std::chrono::steady_clock;

    std::uint64_t id = 0;
    std::string owner = {};
    std::optional<std::uint64_t> asked = {};            // bytes; unset: all
    std::optional<std::chrono::seconds> duration = {};  // unset: until it is ended
    Clock::time_point begun = Clock::now();
    // Set by Claims:
    std::uint64_t bytes = 0;
    std::uint64_t withheld = 0;  // by which the limit is lower; at least `bytes`
};

// Amounts are in bytes.
class Claims {
 public:
    // Adds a claim of `claim.asked`, or of all that exports use here if it is unset.
    // `in_use`: what exports use and may use now. Returns by how much their limit has to fall.
    std::uint64_t begin(Claim claim, std::uint64_t in_use);
    // What a claim has done. If it lowered what is in use by less than it wanted, it is so much
    // smaller. If clients had freed memory, the limit was above what is in use, and fell by more:
    // the end of the claim raises it by that. A claim that has lowered nothing, although it wanted
    // to, ends. Returns whether the claim is in effect.
    struct Effect {
        std::uint64_t wanted = 0;
        std::uint64_t lowered = 0;  // below what is in use
        std::uint64_t limit_fell = 0;
    };
    bool set_effect(std::uint64_t id, const Effect& effect);
    // Ends a claim, or all of them. Returns by how much the limit may rise; unset: to any amount,
    // because no claim is left.
    std::optional<std::uint64_t> end(std::optional<std::uint64_t> id);

    bool contains(std::uint64_t id) const;
    std::vector<ClaimStatus> list(Claim::Clock::time_point now = Claim::Clock::now()) const;

 private:
    // What exports may use of base_.
    std::uint64_t left() const REQUIRES(mutex_);

    mutable Mutex mutex_;
    // What exports used when the first of the claims began.
    std::uint64_t base_ GUARDED_BY(mutex_) = 0;
    std::vector<Claim> claims_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
