// The log: spdlog on standard error, as text or as one JSON object a line, written by a thread of
// its own. Lines that nobody reads are dropped and counted, and keep no client and no end waiting.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

#include "config/options.hpp"

namespace spdlog::details {
class thread_pool;
}

namespace gpunbd::server {

class LogSink;
namespace admin {
class EventLog;
}

// The log of the process, from now on. At its end what has been said is written, if somebody takes
// it.
class Log {
 public:
    // How many lines wait at most; then the oldest are dropped.
    static constexpr std::size_t max_waiting = 4096;

    // `fd`: where it is written.
    explicit Log(const config::LogOptions& options, int fd = 2);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    // The last lines, for who comes later.
    std::shared_ptr<const admin::EventLog> events() const { return events_; }

 private:
    std::shared_ptr<admin::EventLog> events_;
    std::shared_ptr<LogSink> sink_;
    std::shared_ptr<spdlog::details::thread_pool> thread_;
};

// One line of the log, with its end. JSON has the fields of a storage::LogLine as members and is
// valid whatever the bytes of the message; text has no control characters but the ends of lines.
std::unique_ptr<spdlog::formatter> log_formatter(config::LogFormat format);

}  // namespace gpunbd::server
