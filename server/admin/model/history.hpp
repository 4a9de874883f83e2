// The activity of each export in the last hour, from samples of the counters once a second:
// intervals of one second for the last ten minutes, and of ten seconds before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/status.hpp"
#include "server/counters/longest_requests.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server::admin {

class History {
 public:
    static constexpr std::size_t coarse = 10;        // seconds of a coarse interval
    static constexpr std::size_t max_fine = 600;     // intervals of a second
    static constexpr std::size_t max_coarse = 360;   // intervals of ten seconds: an hour
    static constexpr std::size_t max_exports = 512;  // the most recently used; 40 MB

    struct Direction {
        std::uint64_t bytes = 0;
        std::uint32_t requests = 0;
        float p50 = 0;  // seconds
        float p99 = 0;
    };
    // The longest request, in seconds, and where it waited, by stage.
    struct Longest {
        float duration = 0;
        std::array<float, wait_stages.size()> waits{};
    };
    struct Interval {
        Direction read;
        Direction written;
        Longest longest;
    };
    struct Series {
        double end = 0;                        // when the last interval ended
        std::size_t step = 1;                  // seconds of an interval
        std::vector<Interval> intervals = {};  // the oldest first
    };

    // Call it every second. If a call is late, the difference is spread over the seconds missed.
    void sample(const Status& status);
    // The last `seconds`, at most an hour. Returns nothing for an unknown or new export.
    std::optional<Series> of(std::string_view name, std::size_t seconds) const;
    // Fills in the latencies of the last second of each export.
    void add_last_second(Status& status) const;
    // Bytes read and written in each of the last `seconds`, of the exports that moved any.
    std::map<std::string, std::vector<std::uint64_t>> trends(std::size_t seconds) const;
    double end() const { return last_; }  // of the last second; 0: no sample yet

 private:
    struct Counted {
        std::uint64_t requests = 0;
        std::uint64_t bytes = 0;
        storage::Histogram latency;
    };
    struct Counts {
        Counted read;
        Counted written;
    };
    struct Entry {
        std::string instance;          // of the contents
        Counts last;                   // a second ago
        Longest longest;               // since the last coarse interval
        Counts last_coarse;            // at the end of the last coarse interval
        std::size_t age = 0;           // seconds since the first sample
        std::size_t since_coarse = 0;  // seconds
        std::uint64_t used_at = 0;     // the value of samples_ at its last request
        // Empty until the first request: an unused export needs no memory.
        std::deque<Interval> fine;
        std::deque<Interval> coarse;
    };

    static Counts counts_of(const ExportStatus& status);
    static Longest longest_of(const LongestRequest& status);
    static Direction difference(const Counted& before, const Counted& now);
    static Interval difference(const Counts& before, const Counts& now, const Longest& longest);
    static void append(std::deque<Interval>& to, const Interval& all, std::size_t count,
                       std::size_t most);
    // Moves the entries of renamed exports: an export with a new name has the contents of one that
    // is gone.
    void follow_names(const Status& status, const std::set<std::string_view>& there);
    void sample(const ExportStatus& status, std::size_t seconds);
    void limit_exports();

    std::map<std::string, Entry, std::less<>> exports_;
    double last_ = 0;
    std::uint64_t samples_ = 0;
};

}  // namespace gpunbd::server::admin
