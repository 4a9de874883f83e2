// A histogram of durations: log-linear buckets, written by one thread and read by any without
// locks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "storage/counter.hpp"

namespace gpunbd::storage {

using TraceClock = std::chrono::steady_clock;

class Histogram {
 public:
    Histogram() = default;
    // What the other has counted so far.
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
    // Adds what another has counted.
    void add(const Histogram& other) {
        for (std::size_t i = 0; i != buckets; ++i) {
            counts_[i].add(other.counts_[i].value());
        }
        sum_.add(other.sum_.value());
        max_.set(std::max(max_.value(), other.max_.value()));
    }
    // What it has counted since it was as `before`. Of the longest it knows no other than of all.
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
    std::uint64_t sum() const { return sum_.value(); }  // ns, of all together
    // In ns; the upper edge of the bucket in which the quantile (0 to 1) lies, or the longest of
    // all where that is less.
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
    // Those that surely took no longer: what shares a bucket with longer ones is not among them.
    std::uint64_t count_up_to(std::uint64_t ns) const {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i + 1 != buckets && upper_edge(i) <= ns; ++i) {
            sum += counts_[i].value();
        }
        return sum;
    }

 private:
    // Eight buckets per power of two: within 12%. A quarter of an hour, and what takes longer, is
    // in the last one. So it has 2.4 KiB, and there may be many.
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
