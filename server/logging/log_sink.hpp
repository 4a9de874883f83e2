// Standard error, as the thread of the log writes it: whole lines, for as long as somebody takes
// them. Nobody else waits for it.
#pragma once

#include <spdlog/sinks/ansicolor_sink.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>

namespace gpunbd::server {

class LogSink final : public spdlog::sinks::sink {
 public:
    // Writes to `fd`, which stays the caller's.
    LogSink(int fd, spdlog::color_mode mode);
    ~LogSink() override;
    LogSink(const LogSink&) = delete;
    LogSink& operator=(const LogSink&) = delete;

    // How many lines have not come this far in all: the next one that does is led by a line about
    // them. To be set before the first line.
    void count_dropped_by(std::function<std::uint64_t()> dropped) { dropped_ = std::move(dropped); }

    void log(const spdlog::details::log_msg& message) override;
    void flush() override;
    void set_pattern(const std::string& pattern) override;
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

    // Any thread. From now on what cannot be written at once is dropped.
    void give_up() { given_up_ = true; }
    // Until flush() has been called, or there has been no progress for `patience`, or for ten times
    // that in all. True: it has.
    bool wait_until_flushed(std::chrono::milliseconds patience);

 private:
    static ssize_t write(void* self, const char* text, std::size_t length);
    void write_all(const char* text, std::size_t length);

    const int fd_;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    spdlog::sinks::ansicolor_sink<spdlog::details::console_nullmutex> lines_;
    std::function<std::uint64_t()> dropped_;
    std::uint64_t told_ = 0;  // of those dropped
    std::atomic<bool> given_up_{false};
    std::atomic<std::uint64_t> written_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool flushed_ = false;
};

}  // namespace gpunbd::server
