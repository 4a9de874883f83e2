// A line of the log that has fields for machines beside its text for people. Devices write some,
// sessions write more; what shows them is the formatter of the log, which alone knows JSON lines.
#pragma once

#include <spdlog/spdlog.h>

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace gpunbd::storage {

class LogLine {
 public:
    // Where the level is not logged, or the line not wanted, the rest does nothing.
    explicit LogLine(spdlog::level::level_enum level, bool wanted = true)
        : level_(level), on_(wanted && spdlog::should_log(level)) {}

    // `key` is a plain word. Any bytes may be in `value`; a very long one is cut.
    LogLine& with(std::string_view key, std::string_view value);
    template <std::integral Number>
    LogLine& with(std::string_view key, Number value) {
        if (on_) fields_ += fmt::format(R"(,"{}":{})", key, value);
        return *this;
    }
    // To the thousandth; finite.
    LogLine& with(std::string_view key, double value);

    template <typename... Args>
    void say(fmt::format_string<Args...> text, Args&&... args) {
        if (on_) write(fmt::format(text, std::forward<Args>(args)...));
    }

 private:
    void write(std::string text);

    spdlog::level::level_enum level_;
    bool on_;
    std::string fields_;  // members of a JSON object, each behind a comma
};

// What a message of the log consists of; of one that is no LogLine all is text.
struct LogParts {
    std::string_view text;
    std::string_view fields;
};
LogParts parts_of(const spdlog::details::log_msg& message);

// In quotes, with what JSON wants to be escaped. Bytes that are not UTF-8 stay as they are.
std::string json_string(std::string_view text);

}  // namespace gpunbd::storage
