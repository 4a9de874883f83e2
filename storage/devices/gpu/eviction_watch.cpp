#include "storage/devices/gpu/eviction_watch.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::chrono::milliseconds host_interval(200);

double seconds(EvictionWatch::Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

EvictionWatch::EvictionWatch(std::string device_id, RevocableSlabs& slabs, RevocableAccess& access,
                             const Marks& marks, Calls calls)
    : device_id_(std::move(device_id)),
      slabs_(slabs),
      access_(access),
      marks_(marks),
      calls_(std::move(calls)) {}

EvictionWatch::Clock::duration EvictionWatch::step() {
    const Clock::time_point now = calls_.now();
    look_at_host(now);
    const Clock::duration pause = look(now);
    access_.set_by_cpu(evicting() && !returning_);
    return pause;
}

EvictionWatch::Clock::duration EvictionWatch::look(Clock::time_point now) {
    if (slabs_.bytes() == 0) {
        if (evicting()) end(now);
        return interval;
    }
    access_.query_begins(now);
    const std::uint64_t free = calls_.free_memory();
    access_.query_ends();
    if (free < marks_.low && !evicting()) begin(now, free);
    if (!evicting()) return interval;
    // Returning pages take free memory, so the mark for going on is lower than the one for the
    // start.
    const std::uint64_t enough = returning_ ? std::midpoint(marks_.low, marks_.high) : marks_.high;
    if (free >= enough) return bring_back(now);
    stop_returning();
    return interval;
}

void EvictionWatch::stop() noexcept {
    if (returning_slab_) slabs_.unclaim(returning_slab_->address, false);
    returning_slab_.reset();
}

// The host has to hold what can still be moved there. During an eviction, it already holds a part
// of that, and the rest stays on the device unless the other program goes on.
void EvictionWatch::look_at_host(Clock::time_point now) {
    if (host_seen_ && now - *host_seen_ < host_interval) return;
    host_seen_ = now;
    std::uint64_t free = 0;
    try {
        free = calls_.host_memory();
    } catch (const std::exception&) {  // without memory for the query, keep the last result
        return;
    }
    const std::uint64_t owed = evicting() ? 0 : slabs_.bytes();
    const std::uint64_t margin = excess() != 0 ? marks_.host_reserve / 2 : 0;
    const std::uint64_t needed = owed + marks_.host_reserve + margin;
    excess_.store(needed - std::min(needed, free), std::memory_order_relaxed);
}

void EvictionWatch::begin(Clock::time_point now, std::uint64_t free) {
    GPUNBD_ASSERT(!evicting() && !returning_slab_, "an eviction ends before the next one begins");
    access_.set_by_cpu(true);
    slabs_.yield_all();
    evicting_.store(true, std::memory_order_relaxed);
    evictions_.fetch_add(1, std::memory_order_relaxed);
    began_ = now;
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", device_id_)
            .with("free", free)
            .with("revocable", slabs_.bytes())
            .log(
                "{}: another program takes memory, and {} MiB are free: the CPU accesses all {} "
                "MiB of revocable memory while the driver moves its pages to the host",
                device_id_, free >> 20, slabs_.bytes() >> 20);
    });
}

void EvictionWatch::end(Clock::time_point now) {
    GPUNBD_ASSERT(!returning_slab_, "an eviction ends when no slab has to return");
    evicting_.store(false, std::memory_order_relaxed);
    returning_ = false;
    free_since_.reset();
    log_if_possible([&] {
        LogLine(spdlog::level::info)
            .with("device", device_id_)
            .with("seconds", seconds(now - began_))
            .with("revocable", slabs_.bytes())
            .log("{}: all {} MiB of revocable memory are on the device again, after {:.1f} s",
                 device_id_, slabs_.bytes() >> 20, seconds(now - began_));
    });
}

// It is unknown which pages are on the host. Those on the device return without a copy.
EvictionWatch::Clock::duration EvictionWatch::bring_back(Clock::time_point now) {
    if (!free_since_) free_since_ = now;
    if (now - *free_since_ < patience) return interval;
    if (!std::exchange(returning_, true)) access_.set_by_cpu(false);
    if (!returning_slab_) {
        returning_slab_ = slabs_.claim();
        if (!returning_slab_) {
            end(now);
            return interval;
        }
        returned_ = 0;
    }
    const MemoryRange slab = *returning_slab_;
    GPUNBD_ASSERT(returned_ < slab.bytes, "a slab that returns is claimed until it is complete");
    const std::uint64_t bytes = std::min(piece, slab.bytes - returned_);
    if (!calls_.fetch({.address = slab.address + returned_, .bytes = bytes})) {
        stop_returning();
        return interval;
    }
    returned_ += bytes;
    if (returned_ == slab.bytes) {
        slabs_.unclaim(slab.address, true);
        returning_slab_.reset();
    }
    return calls_.now() - now;
}

void EvictionWatch::stop_returning() noexcept {
    free_since_.reset();
    if (!std::exchange(returning_, false)) return;
    stop();
    slabs_.yield_all();
}

}  // namespace gpunbd::storage
