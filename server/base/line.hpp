// What `gpunbd keep` says on standard error, a line at a time. It never waits for whoever reads
// that: a supervisor that stands still keeps its server from starting again.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace gpunbd::server {

void write_without_waiting(std::string_view text);

// Into a buffer on the stack: nothing is allocated. What is too long is cut.
template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
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
