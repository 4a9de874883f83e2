// A histogram of durations: log-linear buckets, written by one thread and read by any without
// locks.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpunbd::storage {

using TraceClock = std::chrono::steady_clock;

class Histogram {
 public:
    Histogram() = default;
    // What the other has counted so far.
    Histogram(const Histogram& other) { *this = other; }
    Histogram& operator=(const Histogram& other) {
        if (&other == this) return *this;
        for (std::size_t i = 0; i != buckets; ++i) set(counts_[i], value(other.counts_[i]));
        set(sum_, value(other.sum_));
        set(max_, value(other.max_));
        return *this;
    }

    void record(TraceClock::duration duration) {
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
        const auto value = static_cast<std::uint64_t>(ns < 0 ? 0 : ns);
        add(counts_[bucket_of(value)]);
        add(sum_, value);
        if (value > max_.load(std::memory_order_relaxed)) {
            max_.store(value, std::memory_order_relaxed);
        }
    }
    // Adds what another has counted.
    void add(const Histogram& other) {
        for (std::size_t i = 0; i != buckets; ++i) {
            add(counts_[i], other.counts_[i].load(std::memory_order_relaxed));
        }
        const std::uint64_t max = other.max_.load(std::memory_order_relaxed);
        if (max > max_.load(std::memory_order_relaxed)) max_ = max;
        add(sum_, value(other.sum_));
    }
    // What it has counted since it was as `before`. Of the longest it knows no other than of all.
    Histogram since(const Histogram& before) const {
        Histogram out(*this);
        for (std::size_t i = 0; i != buckets; ++i) {
            set(out.counts_[i], value(counts_[i]) - value(before.counts_[i]));
        }
        set(out.sum_, value(sum_) - value(before.sum_));
        return out;
    }

    std::uint64_t count() const {
        std::uint64_t sum = 0;
        for (const auto& bucket : counts_) sum += bucket.load(std::memory_order_relaxed);
        return sum;
    }
    std::uint64_t sum() const { return value(sum_); }  // ns, of all together
    // In ns; the upper edge of the bucket in which the quantile (0 to 1) lies, or the longest of
    // all where that is less.
    std::uint64_t quantile(double share) const {
        const auto rank = static_cast<std::uint64_t>(share * static_cast<double>(count()));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i != buckets; ++i) {
            seen += counts_[i].load(std::memory_order_relaxed);
            if (seen > rank) return std::min(upper_edge(i), max());
        }
        return max();
    }
    std::uint64_t max() const { return max_.load(std::memory_order_relaxed); }  // ns

 private:
    static constexpr unsigned linear_bits = 4;  // 16 buckets per power of two: within 6%
    static constexpr std::size_t linear = 1U << linear_bits;
    static constexpr std::size_t buckets = (64 - linear_bits + 1) * linear;

    static std::size_t bucket_of(std::uint64_t value) {
        if (value < linear) return static_cast<std::size_t>(value);
        const auto shift = static_cast<unsigned>(std::bit_width(value)) - linear_bits - 1;
        return (shift + 1) * linear + static_cast<std::size_t>((value >> shift) & (linear - 1));
    }
    static std::uint64_t upper_edge(std::size_t bucket) {
        if (bucket < linear) return bucket;
        const std::size_t shift = bucket / linear - 1;
        return ((linear + bucket % linear + 1) << shift) - 1;
    }
    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }

    static std::uint64_t value(const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    }
    static void set(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
        counter.store(value, std::memory_order_relaxed);
    }

    std::array<std::atomic<std::uint64_t>, buckets> counts_{};
    std::atomic<std::uint64_t> sum_{0};
    std::atomic<std::uint64_t> max_{0};
};

}  // namespace gpunbd::storage
