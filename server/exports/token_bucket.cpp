#include "server/exports/token_bucket.hpp"

#include <algorithm>

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

}  // namespace gpunbd::server
