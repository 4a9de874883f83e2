// Reads environment variables that a supervisor sets for this process, and removes them so that
// child processes do not inherit them.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace gpunbd::server {

inline std::optional<std::string> take_variable(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    std::string value(text);
    ::unsetenv(name);
    return value;
}

inline std::optional<std::uint64_t> decimal(std::string_view digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

}  // namespace gpunbd::server
