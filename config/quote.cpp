#include "config/quote.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace gpunbd::config {
namespace {

constexpr std::size_t max_quote = 64;

std::string escaped(std::string_view text, char quote) {
    const bool utf8 = find_invalid_utf8(text) == std::string_view::npos;
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        const char c = text[i];
        const auto byte = static_cast<unsigned char>(c);
        if (is_c1_control(text.substr(i))) {  // YAML's escape is the code point
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (byte < 0x20 || byte == 0x7f || (byte > 0x7f && !utf8)) {
            out += fmt::format("\\x{:02x}", byte);
        } else {
            if (c == quote || c == '\\') out += '\\';
            out += c;
        }
    }
    return out;
}

// The length in bytes of the first character; 0 if it is not UTF-8.
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return 1;
    const std::size_t length = lead >= 0xf0 ? 4U : lead >= 0xe0 ? 3U : 2U;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0U) != 0x80) return 0;
    }
    // Rejects overlong forms, surrogates, and code points above U+10FFFF.
    const unsigned char second = byte(1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
        return 0;
    }
    return length;
}

}  // namespace

bool is_c1_control(std::string_view text) {
    if (text.size() < 2 || text[0] != '\xc2') return false;
    const auto second = static_cast<unsigned char>(text[1]);
    return second >= 0x80 && second <= 0x9f;
}

std::string in_quotes(std::string_view text) {
    if (text.size() <= max_quote) return fmt::format("'{}'", escaped(text, '\''));
    std::size_t end = max_quote;
    // Do not split a character.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
    return fmt::format("'{}...'", escaped(text.substr(0, end), '\''));
}

std::string yaml_quoted(std::string_view text) { return fmt::format("\"{}\"", escaped(text, '"')); }

std::size_t find_invalid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = utf8_length(text.substr(at));
        if (length == 0) return at;
        at += length;
    }
    return std::string_view::npos;
}

std::string repaired_utf8(std::string_view text) {
    std::string out;
    for (;;) {
        const std::size_t valid = std::min(find_invalid_utf8(text), text.size());
        out += text.substr(0, valid);
        if (valid == text.size()) return out;
        out += "\xef\xbf\xbd";
        text.remove_prefix(valid + 1);
    }
}

}  // namespace gpunbd::config
