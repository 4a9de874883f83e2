// Messages of `gpunbd keep` on standard error. Writing never blocks, because a blocked supervisor
// could not restart the server.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace gpunbd::server {

void write_without_waiting(std::string_view text);

// Formats into a buffer on the stack, without an allocation. Longer lines are truncated.
template <typename... Args>
void log(fmt::format_string<Args...> text, Args&&... args) {
    std::array<char, 1024> line;
    constexpr std::string_view start = "gpunbd keep: ";
    start.copy(line.data(), start.size());
    const std::size_t room = line.size() - start.size() - 1;
    const auto out = fmt::format_to_n(line.data() + start.size(), static_cast<std::ptrdiff_t>(room),
                                      text, std::forward<Args>(args)...);
    *out.out = '\n';
    write_without_waiting({line.data(), static_cast<std::size_t>(out.out - line.data()) + 1});
}

}  // namespace gpunbd::server
