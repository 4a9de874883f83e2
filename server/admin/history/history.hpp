// What each export did in each of the last seconds: the differences of what a server tells once a
// second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "server/admin/status.hpp"
#include "storage/histogram.hpp"

namespace gpunbd::server::admin {

class History {
 public:
    static constexpr std::size_t max_seconds = 600;

    struct Direction {
        std::uint64_t bytes = 0;
        std::uint64_t requests = 0;
        double p50 = 0;  // seconds
        double p99 = 0;
    };
    struct Second {
        Direction read;
        Direction written;
    };
    struct OfExport {
        double end = 0;  // when the last one ended
        std::deque<Second> seconds;
    };

    // After each second; where that came later, what was meanwhile is spread over the seconds.
    void sample(const Status& status);
    // Null: there is no such export, or it has just been made.
    const OfExport* of(std::string_view name) const;

 private:
    struct Counted {
        std::uint64_t requests = 0;
        std::uint64_t bytes = 0;
        storage::Histogram latency;
    };
    struct Kept {
        OfExport history;
        Counted read;
        Counted written;
    };

    static Counted counted(const ExportStatus& status, std::string_view type);
    static Direction difference(const Counted& before, const Counted& now);
    void sample(const ExportStatus& status, double time, std::size_t seconds);

    std::map<std::string, Kept, std::less<>> exports_;
    double last_ = 0;
};

}  // namespace gpunbd::server::admin
