#pragma once

#include <algorithm>

#include "storage/base/histogram.hpp"

namespace gpunbd::storage {

// Where a request has waited since its owner began it. Times are those of Channels::now(), so
// waits within one round of the worker are not measured.
struct TransferWaits {
    using Time = TraceClock::time_point;
    using Duration = TraceClock::duration;

    void begin(Time now) { *this = {.began = now, .since = now}; }
    void begin_wait(Time now) { since = std::max(since, now); }
    // A wait ends, which has lasted since begin_wait() or since the last one ended.
    void end(Duration TransferWaits::*wait, Time now) {
        if (now <= since) return;
        this->*wait += now - since;
        since = now;
    }
    // The payload of a WRITE is complete. Copies of its first chunks ran meanwhile.
    void payload_complete(Time now) {
        payload = now - began - memory;
        device = {};
        since = now;
    }

    Time began{};
    Time since{};        // the end of the last wait
    Duration payload{};  // WRITE: for its payload
    Duration memory{};   // for pages and for staging memory
    Duration device{};   // for copies
    Duration socket{};   // READ: until earlier pieces were sent
};

}  // namespace gpunbd::storage
