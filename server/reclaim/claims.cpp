#include "server/reclaim/claims.hpp"

#include <algorithm>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

std::uint64_t Claims::left() const {
    std::uint64_t left = base_;
    for (const Claim& each : claims_) left -= std::min(left, each.withheld);
    return left;
}

std::uint64_t Claims::begin(Claim claim, std::uint64_t in_use) {
    const Lock lock(mutex_);
    GPUNBD_ASSERT(std::ranges::find(claims_, claim.id, &Claim::id) == claims_.end(),
                  "a claim begins once on a device");
    if (claims_.empty()) base_ = in_use;
    claim.bytes = std::min(base_, claim.asked.value_or(base_));
    claim.withheld = claim.bytes;
    const std::uint64_t before = left();
    claims_.push_back(std::move(claim));
    return before - left();
}

bool Claims::set_effect(std::uint64_t id, const Effect& effect) {
    const Lock lock(mutex_);
    const auto found = std::ranges::find(claims_, id, &Claim::id);
    if (found == claims_.end()) return false;
    if (effect.lowered < effect.wanted) {
        if (effect.lowered == 0) {
            claims_.erase(found);
            return false;
        }
        found->bytes = effect.lowered;  // without what earlier claims have already
    }
    GPUNBD_ASSERT(found->bytes <= base_, "a claim is a part of what was in use");
    found->withheld = std::max(found->bytes, effect.limit_fell);
    return true;
}

std::optional<std::uint64_t> Claims::end(std::optional<std::uint64_t> id) {
    const Lock lock(mutex_);
    const std::uint64_t before = left();
    const auto ended =
        std::erase_if(claims_, [&](const Claim& each) { return !id || each.id == *id; });
    if (id && ended == 0) return 0;
    if (claims_.empty()) return std::nullopt;
    GPUNBD_ASSERT(left() >= before, "the end of a claim raises what exports may use");
    return left() - before;
}

bool Claims::contains(std::uint64_t id) const {
    const Lock lock(mutex_);
    return std::ranges::find(claims_, id, &Claim::id) != claims_.end();
}

std::vector<ClaimStatus> Claims::list(Claim::Clock::time_point now) const {
    using Seconds = std::chrono::duration<double>;
    const Lock lock(mutex_);
    std::vector<ClaimStatus> out;
    for (const Claim& each : claims_) {
        const Seconds age = now - each.begun;
        ClaimStatus& status = out.emplace_back(ClaimStatus{
            .id = each.id, .owner = each.owner, .asked = each.asked, .bytes = each.bytes});
        status.age = age.count();
        if (each.duration) status.ends_in = std::max(0.0, (*each.duration - age).count());
    }
    return out;
}

}  // namespace gpunbd::server
