// How long the requests to an origin take, by operation. Any thread records and reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "storage/base/histogram.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

class OriginTimes {
 public:
    enum class Operation : std::uint8_t { read, write, zero, flush };
    static constexpr std::array<std::string_view, 4> names{"read", "write", "zero", "flush"};

    void record(Operation operation, TraceClock::duration took) EXCLUDES(mutex_) {
        const Lock lock(mutex_);
        times_[static_cast<std::size_t>(operation)].record(took);
    }
    // Takes no lock: only writers of a Histogram exclude each other.
    const Histogram& of(Operation operation) const NO_THREAD_SAFETY_ANALYSIS {
        return times_[static_cast<std::size_t>(operation)];
    }

 private:
    Mutex mutex_;
    std::array<Histogram, names.size()> times_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::storage
