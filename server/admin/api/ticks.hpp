// The server-sent event of each second. It is encoded once for all streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/admin/model/event_log.hpp"
#include "server/admin/model/status.hpp"

namespace gpunbd::server::admin {

class Ticks {
 public:
    // In one tick: stalled connections, and the busiest ones.
    static constexpr std::size_t max_connections = 256;

    // `events` outlives it.
    explicit Ticks(const EventLog& events) : events_(events) {}

    void set(const Status& status);
    // With the log events after `seen`, which becomes the last one. Returns nothing before the
    // first set().
    std::optional<std::string> tick(std::uint64_t& seen) const;
    std::uint64_t last_event() const { return events_.last_id(); }

 private:
    const EventLog& events_;
    std::string start_;  // of the tick, without its events; empty: none yet
    std::map<std::uint64_t, std::uint64_t> requests_;  // of each connection, a second ago
};

}  // namespace gpunbd::server::admin
