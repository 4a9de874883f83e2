#include "server/logging/log_sink.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/details/os.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>

namespace gpunbd::server {

namespace {

constexpr int patience_ms = 100;  // interval for checking given_up_
constexpr int max_waits = 10;     // for a slow reader

spdlog::color_mode resolved(spdlog::color_mode mode, int fd) {
    if (mode != spdlog::color_mode::automatic) return mode;
    return ::isatty(fd) != 0 && spdlog::details::os::is_color_terminal()
               ? spdlog::color_mode::always
               : spdlog::color_mode::never;
}

}  // namespace

// ansicolor_sink handles colours; the cookie stream writes its output.
LogSink::LogSink(int fd, spdlog::color_mode mode)
    : fd_(fd),
      file_(::fopencookie(
                this, "w",
                {.read = nullptr, .write = &LogSink::write, .seek = nullptr, .close = nullptr}),
            &std::fclose),
      lines_(file_ ? file_.get() : throw std::bad_alloc(), resolved(mode, fd)) {}

LogSink::~LogSink() = default;

void LogSink::log(const spdlog::details::log_msg& message) {
    const std::uint64_t dropped = dropped_ ? dropped_() : 0;
    if (dropped != reported_) {
        const std::string text =
            fmt::format("log: {} line{} dropped because standard error was blocked",
                        dropped - reported_, dropped - reported_ == 1 ? " was" : "s were");
        spdlog::details::log_msg gap(message.logger_name, spdlog::level::warn, text);
        gap.time = message.time;
        lines_.log(gap);
        reported_ = dropped;
    }
    lines_.log(message);
}

void LogSink::flush() {
    const Lock lock(mutex_);
    flushed_ = true;
    changed_.notify_all();
}

void LogSink::set_pattern(const std::string& pattern) { lines_.set_pattern(pattern); }

void LogSink::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
    lines_.set_formatter(std::move(formatter));
}

bool LogSink::wait_until_flushed(std::chrono::milliseconds patience) {
    const Lock lock(mutex_);
    const auto is_flushed = [this]() REQUIRES(mutex_) { return flushed_; };
    std::uint64_t before = written_;
    for (int waits = 0; waits != max_waits; ++waits) {
        if (changed_.wait_for(mutex_, patience, is_flushed)) return true;
        if (written_ == before) return false;
        before = written_;
    }
    return false;
}

ssize_t LogSink::write(void* self, const char* text, std::size_t length) {
    static_cast<LogSink*>(self)->write_all(text, length);
    return static_cast<ssize_t>(length);  // otherwise the stream would buffer dropped text
}

void LogSink::write_all(const char* text, std::size_t length) {
    while (length != 0) {
        pollfd room{.fd = fd_, .events = POLLOUT, .revents = 0};
        const int ready = ::poll(&room, 1, given_up_ ? 0 : patience_ms);
        if (ready == 0 || (ready < 0 && errno == EINTR)) {
            if (given_up_) return;
            continue;
        }
        // If poll() reports a pipe as writable, writing PIPE_BUF bytes does not block.
        const ssize_t done = ::write(fd_, text, std::min<std::size_t>(length, PIPE_BUF));
        if (done < 0 && (errno == EAGAIN || errno == EINTR) && !given_up_) continue;
        if (done < 0) return;
        text += done;
        length -= static_cast<std::size_t>(done);
        ++written_;
    }
}

}  // namespace gpunbd::server
