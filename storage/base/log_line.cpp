#include "storage/base/log_line.hpp"

#include <cstddef>

namespace gpunbd::storage {

namespace {

// Some log collectors split lines at 16 KiB, and escaping can make six bytes of one.
constexpr std::size_t max_value = 1024;

// The fields follow the text in the payload, and the source location of the message has the length
// of the text. Loggers copy and queue both together, and no text can forge the pointer.
constexpr char fields_follow[] = "fields follow";

}  // namespace

LogLine& LogLine::with(std::string_view key, std::string_view value) {
    if (!on_) return *this;
    if (value.size() <= max_value) {
        fields_ += fmt::format(R"(,"{}":{})", key, json_string(value));
        return *this;
    }
    std::size_t end = max_value;
    // Do not truncate within a UTF-8 character.
    while (end > max_value - 4 && (static_cast<unsigned char>(value[end]) & 0xc0U) == 0x80) {
        --end;
    }
    fields_ +=
        fmt::format(R"(,"{}":{})", key, json_string(std::string(value.substr(0, end)) + "..."));
    return *this;
}

LogLine& LogLine::with(std::string_view key, double value) {
    if (on_) fields_ += fmt::format(R"(,"{}":{:.3f})", key, value);
    return *this;
}

void LogLine::write(std::string text) {
    const spdlog::source_loc end_of_text(fields_follow, static_cast<int>(text.size()), "");
    text += fields_;
    spdlog::default_logger_raw()->log(end_of_text, level_, spdlog::string_view_t(text));
}

LogParts parts_of(const spdlog::details::log_msg& message) {
    const std::string_view all(message.payload.data(), message.payload.size());
    if (message.source.filename != fields_follow) return {.text = all, .fields = {}};
    const auto end = static_cast<std::size_t>(message.source.line);
    return {.text = all.substr(0, end), .fields = all.substr(end)};
}

std::string json_string(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (byte < 0x20 || byte == 0x7f) {
            out += fmt::format("\\u{:04x}", byte);
        } else {
            out += c;
        }
    }
    return out + '"';
}

}  // namespace gpunbd::storage
