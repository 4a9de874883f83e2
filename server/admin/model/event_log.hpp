// The last lines of the log, for later clients. Safe for use by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "server/admin/model/status.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server::admin {

class EventLog {
 public:
    static constexpr std::size_t max_events = 1000;
    static constexpr std::size_t max_text = 4096;  // bytes; longer lines are truncated

    // Assigns the id.
    void add(EventStatus event);
    // Events with a greater id, the oldest first.
    std::vector<EventStatus> after(std::uint64_t id) const;
    std::uint64_t last_id() const;  // 0: no event yet

 private:
    mutable Mutex mutex_;
    std::deque<EventStatus> events_ GUARDED_BY(mutex_);
    std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gpunbd::server::admin
