// Latencies in nanoseconds, in log-linear buckets (1.6% wide): recording is one increment and never
// allocates.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gpunbd::bench {

class Histogram {
 public:
    void record(std::uint64_t nanoseconds) {
        ++buckets_[bucket_of(nanoseconds)];
        ++count_;
    }

    void merge(const Histogram& other) {
        for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
        count_ += other.count_;
    }

    // The middle of the bucket that contains the given share (0..1) of all values, in nanoseconds.
    // 0 if nothing was recorded.
    double percentile(double share) const {
        if (count_ == 0) return 0;
        const auto wanted = std::max(
            std::uint64_t{1}, static_cast<std::uint64_t>(share * static_cast<double>(count_)));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            seen += buckets_[i];
            if (seen >= wanted) return (lower_edge(i) + lower_edge(i + 1)) / 2;
        }
        return lower_edge(buckets_.size());
    }

 private:
    static constexpr unsigned sub_bits = 6;
    static constexpr std::uint64_t sub_count = 1 << sub_bits;
    static constexpr unsigned max_bits = 40;  // 18 minutes; longer values are in the last bucket

    static std::size_t bucket_of(std::uint64_t value) {
        value = std::min(value, (std::uint64_t{1} << max_bits) - 1);
        if (value < sub_count) return static_cast<std::size_t>(value);
        const auto shift = static_cast<unsigned>(std::bit_width(value)) - 1 - sub_bits;
        return static_cast<std::size_t>((shift + 1) * sub_count + (value >> shift) - sub_count);
    }

    static double lower_edge(std::size_t bucket) {
        if (bucket < sub_count) return static_cast<double>(bucket);
        const auto shift = bucket / sub_count - 1;
        return static_cast<double>((sub_count + bucket % sub_count) << shift);
    }

    std::array<std::uint64_t, (max_bits - sub_bits + 1) * sub_count> buckets_{};
    std::uint64_t count_ = 0;
};

}  // namespace gpunbd::bench
