// A histogram of durations with log-linear buckets. One thread writes it, any thread reads it,
// without locks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "storage/base/counter.hpp"

namespace gpunbd::storage {

using TraceClock = std::chrono::steady_clock;

class Histogram {
 public:
    Histogram() = default;
    // A snapshot of the other histogram.
    Histogram(const Histogram& other) { *this = other; }
    Histogram& operator=(const Histogram& other) {
        if (&other == this) return *this;
        for (std::size_t i = 0; i != buckets; ++i) counts_[i].set(other.counts_[i].value());
        sum_.set(other.sum_.value());
        max_.set(other.max_.value());
        return *this;
    }

    void record(TraceClock::duration duration) {
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
        const auto value = static_cast<std::uint64_t>(ns < 0 ? 0 : ns);
        counts_[bucket_of(value)].add();
        sum_.add(value);
        if (value > max_.value()) max_.set(value);
    }
    void add(const Histogram& other) {
        for (std::size_t i = 0; i != buckets; ++i) {
            counts_[i].add(other.counts_[i].value());
        }
        sum_.add(other.sum_.value());
        max_.set(std::max(max_.value(), other.max_.value()));
    }
    // The durations recorded since the snapshot `before`. The maximum is that of all durations.
    Histogram since(const Histogram& before) const {
        Histogram out(*this);
        for (std::size_t i = 0; i != buckets; ++i) {
            out.counts_[i].set(counts_[i].value() - before.counts_[i].value());
        }
        out.sum_.set(sum_.value() - before.sum_.value());
        return out;
    }

    std::uint64_t count() const {
        std::uint64_t sum = 0;
        for (const Counter& bucket : counts_) sum += bucket.value();
        return sum;
    }
    std::uint64_t sum() const { return sum_.value(); }  // ns, of all durations
    // In ns: the upper edge of the bucket that contains the quantile (0 to 1), or the maximum if
    // that is less.
    std::uint64_t quantile(double share) const {
        const auto rank = static_cast<std::uint64_t>(share * static_cast<double>(count()));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i != buckets; ++i) {
            seen += counts_[i].value();
            if (seen > rank) return i + 1 == buckets ? max() : std::min(upper_edge(i), max());
        }
        return max();
    }
    std::uint64_t max() const { return max_.value(); }  // ns
    // Durations that are certainly not longer. Buckets that also contain longer ones do not count.
    std::uint64_t count_up_to(std::uint64_t ns) const {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i + 1 != buckets && upper_edge(i) <= ns; ++i) {
            sum += counts_[i].value();
        }
        return sum;
    }

 private:
    // Eight buckets per power of two, so within 12%. The last bucket has durations of a quarter of
    // an hour and longer. A histogram takes 2.4 KiB.
    static constexpr unsigned linear_bits = 3;
    static constexpr unsigned longest_bits = 40;
    static constexpr std::size_t linear = 1U << linear_bits;
    static constexpr std::size_t buckets = (longest_bits - linear_bits + 1) * linear;

    static std::size_t bucket_of(std::uint64_t value) {
        if (value < linear) return static_cast<std::size_t>(value);
        const auto shift = static_cast<unsigned>(std::bit_width(value)) - linear_bits - 1;
        const std::size_t bucket =
            (shift + 1) * linear + static_cast<std::size_t>((value >> shift) & (linear - 1));
        return std::min(bucket, buckets - 1);
    }
    static std::uint64_t upper_edge(std::size_t bucket) {
        if (bucket < linear) return bucket;
        const std::size_t shift = bucket / linear - 1;
        return ((linear + bucket % linear + 1) << shift) - 1;
    }

    std::array<Counter, buckets> counts_;
    Counter sum_;
    Counter max_;
};

}  // namespace gpunbd::storage
