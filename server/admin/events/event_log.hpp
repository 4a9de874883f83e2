// The last lines of the log, for who comes later: written by the thread of the log, read by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "server/admin/status.hpp"

namespace gpunbd::server::admin {

class EventLog {
 public:
    static constexpr std::size_t max_events = 1000;
    static constexpr std::size_t max_text = 4096;  // bytes; of a longer line the start is kept

    // Its id is given here.
    void add(EventStatus event);
    // Those with a greater id, the oldest first.
    std::vector<EventStatus> after(std::uint64_t id) const;
    std::uint64_t last_id() const;  // 0: there was none yet

 private:
    mutable std::mutex mutex_;
    std::deque<EventStatus> events_;
    std::uint64_t last_id_ = 0;
};

}  // namespace gpunbd::server::admin
