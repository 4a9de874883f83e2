// What administrators have claimed of the memory that exports use on one device. Claims add up, and
// the end of one leaves the others in effect. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/admin/model/status.hpp"

namespace gpunbd::server {

struct Claim {
    using Clock = std::chrono::steady_clock;

    std::uint64_t id = 0;
    std::string owner = {};
    std::optional<std::uint64_t> asked = {};            // bytes; unset: all
    std::optional<std::chrono::seconds> duration = {};  // unset: until it is ended
    Clock::time_point begun = Clock::now();
    std::uint64_t bytes = 0;  // set by Claims
};

// Amounts are in bytes.
class Claims {
 public:
    // Adds a claim of `claim.asked`, or of all that exports use here if it is unset.
    // `in_use`: what exports use and may use now. Returns by how much their limit has to fall.
    std::uint64_t begin(Claim claim, std::uint64_t in_use);
    // The limit fell by `lowered` instead of `wanted`, so the claim is so much smaller. A claim
    // that has lowered nothing, although it wanted to, ends. Returns whether the claim is in
    // effect.
    bool reduce(std::uint64_t id, std::uint64_t wanted, std::uint64_t lowered);
    // Ends a claim, or all of them. Returns by how much the limit may rise; unset: to any amount,
    // because no claim is left.
    std::optional<std::uint64_t> end(std::optional<std::uint64_t> id);

    bool contains(std::uint64_t id) const;
    std::vector<ClaimStatus> list(Claim::Clock::time_point now = Claim::Clock::now()) const;

 private:
    // What exports may use of base_. With the lock held.
    std::uint64_t left() const;

    mutable std::mutex mutex_;
    std::uint64_t base_ = 0;  // what exports used when the first of the claims began
    std::vector<Claim> claims_;
};

}  // namespace gpunbd::server
