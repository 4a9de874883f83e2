// What is sent each second to who watches: made once, however many do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/admin/events/event_log.hpp"
#include "server/admin/status.hpp"

namespace gpunbd::server::admin {

class Ticks {
 public:
    static constexpr std::size_t max_connections = 256;  // of one tick; the busiest

    // `events` outlive it.
    explicit Ticks(const EventLog& events) : events_(events) {}

    void set(const Status& status);
    // A server-sent event, with what the log has said since the event `seen`, which becomes the
    // last one. Nothing: there has been no status yet.
    std::optional<std::string> tick(std::uint64_t& seen) const;
    std::uint64_t last_event() const { return events_.last_id(); }

 private:
    const EventLog& events_;
    std::string start_;                                // of the tick; empty: none yet
    std::map<std::uint64_t, std::uint64_t> requests_;  // of connections, a second ago
};

}  // namespace gpunbd::server::admin
