// Captures the log lines during its lifetime, with the queue of the logger.
#pragma once

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "server/logging/log.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

class CapturedLog {
 public:
    explicit CapturedLog(spdlog::level::level_enum level) : before_(spdlog::default_logger()) {
        auto logger = std::make_shared<spdlog::logger>("kept", sink_);
        logger->set_level(level);
        spdlog::set_default_logger(std::move(logger));
    }
    ~CapturedLog() { spdlog::set_default_logger(before_); }
    CapturedLog(const CapturedLog&) = delete;
    CapturedLog& operator=(const CapturedLog&) = delete;

    // Formats the lines with the same time.
    std::vector<std::string> lines(config::LogFormat format) const {
        const auto formatter = log_formatter(format);
        std::vector<std::string> lines;
        for (spdlog::details::log_msg_buffer message : sink_->messages()) {
            message.time = spdlog::log_clock::time_point(std::chrono::milliseconds(1795292442123));
            spdlog::memory_buf_t line;
            formatter->format(message, line);
            lines.emplace_back(line.data(), line.size());
        }
        return lines;
    }
    // The number of lines that contain this text.
    std::ptrdiff_t count(std::string_view part) const {
        const auto all = lines(config::LogFormat::text);
        return std::ranges::count_if(all, [&](const auto& line) { return contains(line, part); });
    }
    void check(std::string_view part) const {
        const auto all = lines(config::LogFormat::text);
        CAPTURE(part);
        CAPTURE(all);
        CHECK(count(part) != 0);
    }

 private:
    class Sink final : public spdlog::sinks::base_sink<std::mutex> {
     public:
        std::vector<spdlog::details::log_msg_buffer> messages() {
            const std::lock_guard lock(mutex_);
            return messages_;
        }

     protected:
        void sink_it_(const spdlog::details::log_msg& message) override {
            messages_.emplace_back(message);
        }
        void flush_() override {}

     private:
        std::vector<spdlog::details::log_msg_buffer> messages_;
    };

    std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
    std::shared_ptr<spdlog::logger> before_;
};

}  // namespace gpunbd::server::test
