#include "protocol/text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "protocol/constants.hpp"

namespace gpunbd::protocol {
namespace {

constexpr std::size_t max_logged = 64;

// The length of the UTF-8 sequence at the start of `text` (not empty), or 0 if it is malformed.
// Limits on the second byte exclude overlong forms, surrogates and code points past U+10FFFF.
std::size_t utf8_sequence(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::uint8_t lead = byte(0);
    if (lead < 0x80) return 1;

    std::size_t length = 0;
    std::uint8_t low = 0x80;
    std::uint8_t high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    return length;
}

}  // namespace

bool valid_string(std::string_view text) {
    if (text.size() > max_string) return false;
    while (!text.empty()) {
        const std::size_t length = utf8_sequence(text);
        if (length == 0 || text.front() == '\0') return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string for_log(std::string_view text) {
    const bool cut = text.size() > max_logged;
    std::string shown(text.substr(0, max_logged));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~' || c == '\''; }, '?');
    return '\'' + shown + (cut ? "...'" : "'");
}

}  // namespace gpunbd::protocol
