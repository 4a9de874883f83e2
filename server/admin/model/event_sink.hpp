// A sink of the log that stores its lines as events.
#pragma once

#include <spdlog/sinks/sink.h>

#include <memory>

#include "server/admin/model/event_log.hpp"

namespace gpunbd::server::admin {

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
