// The last lines of the log, for later clients. Safe for use by any thread.
#pragma once

#include <spdlog/sinks/sink.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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

// A sink of the log that stores its lines as events.
class EventSink final : public spdlog::sinks::sink {
 public:
    explicit EventSink(std::shared_ptr<EventLog> events) : events_(std::move(events)) {}

    void log(const spdlog::details::log_msg& message) override;
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
    const std::shared_ptr<EventLog> events_;
};

}  // namespace gpunbd::server::admin
