// Writes whole lines to standard error. Only the log thread may block.
#pragma once

#include <spdlog/sinks/ansicolor_sink.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>

#include "storage/base/mutex.hpp"

namespace gpunbd::server {

class LogSink final : public spdlog::sinks::sink {
 public:
    // Writes to `fd`, which the caller owns.
    LogSink(int fd, spdlog::color_mode mode);
    ~LogSink() override;
    LogSink(const LogSink&) = delete;
    LogSink& operator=(const LogSink&) = delete;

    // Sets the function that counts the dropped lines. If the count has changed, the next line is
    // preceded by a line with the number. Call it before the first line.
    void count_dropped_by(std::function<std::uint64_t()> dropped) { dropped_ = std::move(dropped); }

    void log(const spdlog::details::log_msg& message) override;
    void flush() override;
    void set_pattern(const std::string& pattern) override;
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

    // Any thread. From now on lines that would block are dropped.
    void give_up() { given_up_ = true; }
    // Waits for flush(). Stops after `patience` without progress, or after ten times `patience`.
    // Returns true if flush() was called.
    bool wait_until_flushed(std::chrono::milliseconds patience);

 private:
    static ssize_t write(void* self, const char* text, std::size_t length);
    void write_all(const char* text, std::size_t length);

    const int fd_;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    spdlog::sinks::ansicolor_sink<spdlog::details::console_nullmutex> lines_;
    std::function<std::uint64_t()> dropped_;
    std::uint64_t reported_ = 0;  // of the dropped lines
    std::atomic<bool> given_up_{false};
    std::atomic<std::uint64_t> written_{0};
    Mutex mutex_;
    Condition changed_;
    bool flushed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::server
