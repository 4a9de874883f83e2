#pragma once

#include <spdlog/formatter.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "config/options.hpp"
#include "storage/base/long_work.hpp"

namespace spdlog::details {
class thread_pool;
}

namespace gpunbd::server {

// "provisioning cuda:0: 12 GiB of 64 GiB (18%)"; `bar` appends "[###-----------------]".
std::string progress_text(const storage::LongWork::Progress& work, bool bar);

// Logs the progress of long operations: one line per second for each, after the first second; on a
// terminal with a bar.
class ProgressLog {
 public:
    // `io` outlives it.
    explicit ProgressLog(boost::asio::io_context& io);

    // Starts the periodic updates. They stop when `lasts` returns false. On the thread of `io`.
    void watch(std::function<bool()> lasts);
    void stop() { timer_.cancel(); }

 private:
    void schedule_update();
    void log_progress() const;

    boost::asio::steady_timer timer_;
    std::function<bool()> lasts_;
    bool watching_ = false;
    const bool terminal_;
};

// The log: spdlog on standard error, as text or as one JSON object per line, written by a thread of
// its own. Lines that are not read in time are dropped and counted, so that logging never blocks.

class LogSink;
namespace admin {
class EventLog;
}

// Replaces the process's default logger. The destructor writes the queued lines, as long as they
// are read.
class Log {
 public:
    // The number of queued lines. If more are logged, the oldest are dropped.
    static constexpr std::size_t max_waiting = 4096;

    // `fd`: the descriptor to write to.
    explicit Log(const config::LogOptions& options, int fd = 2);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    // The last lines, for clients that connect later.
    std::shared_ptr<const admin::EventLog> events() const { return events_; }

 private:
    std::shared_ptr<admin::EventLog> events_;
    std::shared_ptr<LogSink> sink_;
    std::shared_ptr<spdlog::details::thread_pool> thread_;
};

// Formats a line with its end. JSON has the fields of a storage::LogLine as members and is valid
// for any bytes in the message. Text has no control characters except line ends.
std::unique_ptr<spdlog::formatter> log_formatter(config::LogFormat format);

}  // namespace gpunbd::server
