#include "server/process/log.hpp"

#include <fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "config/quote.hpp"
#include "storage/log_line.hpp"

namespace gpunbd::server {

namespace {

using Out = spdlog::memory_buf_t;
using Message = spdlog::details::log_msg;

// A flag of a pattern, shown by a function.
template <void show(const Message& message, const std::tm& time, Out& out)>
class Flag final : public spdlog::custom_flag_formatter {
 public:
    void format(const Message& message, const std::tm& time, Out& out) override {
        show(message, time, out);
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
        return std::make_unique<Flag>();
    }
};

void append(Out& out, std::string_view text) { out.append(text.data(), text.data() + text.size()); }

// Each byte that is not UTF-8 becomes U+FFFD.
void append_repaired(Out& out, std::string_view text) {
    for (;;) {
        const std::size_t valid = std::min(config::find_invalid_utf8(text), text.size());
        append(out, text.substr(0, valid));
        if (valid == text.size()) return;
        append(out, "\xef\xbf\xbd");
        text.remove_prefix(valid + 1);
    }
}

void show_json(const Message& message, const std::tm&, Out& out) {
    const storage::LogParts parts = storage::parts_of(message);
    append_repaired(out, R"("message":)" + storage::json_string(parts.text));
    append_repaired(out, parts.fields);
}

// Nothing that a terminal would obey.
void show_text(const Message& message, const std::tm&, Out& out) {
    for (const char c : storage::parts_of(message).text) {
        const bool obeyed = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
        out.push_back(obeyed ? '?' : c);
    }
}

// +0100: spdlog's own has a colon, as JSON's RFC 3339 wants it.
void show_zone(const Message&, const std::tm& time, Out& out) {
    fmt::format_to(std::back_inserter(out), "{:%z}", time);
}

spdlog::color_mode color_mode() {
    const char* const no_color = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
    return no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never
                                                    : spdlog::color_mode::automatic;
}

}  // namespace

std::unique_ptr<spdlog::formatter> log_formatter(config::LogFormat format) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Flag<show_json>>('*');
    formatter->add_flag<Flag<show_text>>('&');
    formatter->add_flag<Flag<show_zone>>('~');
    formatter->set_pattern(format == config::LogFormat::json
                               ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%*})"
                               : "%Y-%m-%d %H:%M:%S.%e %~ %^%l%$: %&");
    return formatter;
}

void start_log(const config::LogOptions& options) {
    auto logger = std::make_shared<spdlog::logger>(
        "gpunbd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color_mode()));
    logger->set_formatter(log_formatter(options.format));
    logger->set_level(spdlog::level::from_str(options.level));
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace gpunbd::server
