#include "storage/devices/competition.hpp"

#include <algorithm>

namespace gpunbd::storage {

namespace {

// The interval until the first slow probe: short, but long enough for our own kernels to end.
constexpr std::chrono::milliseconds first_probes(5);

}  // namespace

bool Competition::kernel_was_slow(Clock::time_point now) {
    if (use_ != GpuUse::automatic) return false;
    const Lock lock(mutex_);
    if (!kernels_allowed()) return false;
    if (allowed_since_ != Clock::time_point{} && now - allowed_since_ < trust_) return false;
    const bool second = last_slow_ != Clock::time_point{} && now - last_slow_ <= window;
    last_slow_ = now;
    if (!second) return false;
    last_slow_ = {};
    confirmed_ = false;
    quiet_ = 0;
    kernels_.store(false, std::memory_order_relaxed);
    return true;
}

bool Competition::noticed() const {
    const Lock lock(mutex_);
    return confirmed_ && !kernels_allowed();
}

Competition::Clock::duration Competition::until_probe() const {
    const Lock lock(mutex_);
    return confirmed_ ? Clock::duration(probe_interval) : Clock::duration(first_probes);
}

bool Competition::probe_took(Clock::duration took, Clock::time_point now) {
    const Lock lock(mutex_);
    if (kernels_allowed()) return false;
    if (took >= slow) {
        const bool relapsed =
            !confirmed_ && allowed_since_ != Clock::time_point{} && now - allowed_since_ < relapse;
        if (!confirmed_) {
            wanted_ = relapsed ? std::min(2 * wanted_, max_quiet_probes) : min_quiet_probes;
        }
        if (!confirmed_) times_noticed_.add();
        confirmed_ = true;
        quiet_ = 0;
        trust_ = {};
        return false;
    }
    if (++quiet_ < (confirmed_ ? wanted_ : min_quiet_probes)) return false;
    if (!confirmed_) {
        trust_ = std::clamp<Clock::duration>(2 * trust_, min_trust, max_trust);
    }
    allowed_since_ = now;
    kernels_.store(true, std::memory_order_relaxed);
    return true;
}

const char* to_text(GpuUse use) {
    switch (use) {
        case GpuUse::automatic:
            return "auto";
        case GpuUse::copy_engines:
            return "copy-engines";
        case GpuUse::all:
            return "all";
    }
    return "?";
}

}  // namespace gpunbd::storage
