// A log line with a human-readable text and machine-readable fields. The formatter of the log
// decides how to show the fields.
#pragma once

#include <spdlog/spdlog.h>

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace gpunbd::storage {

class LogLine {
 public:
    // If the level is not logged, or the line is not `wanted`, the other functions do nothing.
    explicit LogLine(spdlog::level::level_enum level, bool wanted = true)
        : level_(level), on_(wanted && spdlog::should_log(level)) {}

    // `key` is a plain word. `value` may contain any bytes; long values are truncated.
    LogLine& with(std::string_view key, std::string_view value);
    template <std::integral Number>
    LogLine& with(std::string_view key, Number value) {
        if (on_) fields_ += fmt::format(R"(,"{}":{})", key, value);
        return *this;
    }
    // With three decimals. The value is finite.
    LogLine& with(std::string_view key, double value);

    template <typename... Args>
    void log(fmt::format_string<Args...> text, Args&&... args) {
        if (on_) write(fmt::format(text, std::forward<Args>(args)...));
    }

 private:
    void write(std::string text);

    spdlog::level::level_enum level_;
    bool on_;
    std::string fields_;  // members of a JSON object, each preceded by a comma
};

// For functions that must not throw: drops the line if there is no memory for it.
template <typename Log>
void log_if_possible(Log log) noexcept {
    try {
        log();
    } catch (...) {
    }
}

// The parts of a log message. A message that is not a LogLine has only text.
struct LogParts {
    std::string_view text;
    std::string_view fields;
};
LogParts parts_of(const spdlog::details::log_msg& message);

// A JSON string with quotes. Bytes that are not valid UTF-8 are not changed.
std::string json_string(std::string_view text);

}  // namespace gpunbd::storage
