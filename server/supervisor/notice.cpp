#include "server/supervisor/notice.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpunbd::server {

namespace {

template <class Action>
void for_each_line(std::string_view text, Action action) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        action(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

pid_t pid_of(std::string_view digits) {
    pid_t pid = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, pid);
    return error == std::errc{} && stop == end && pid > 0 ? pid : -1;
}

}  // namespace

Notice read_notice(std::string_view text) {
    constexpr std::string_view name = "FDNAME=";
    constexpr std::string_view main_pid = "MAINPID=";
    Notice out;
    for_each_line(text, [&](std::string_view line) {
        out.store |= line == "FDSTORE=1";
        out.remove |= line == "FDSTOREREMOVE=1";
        out.ready |= line == "READY=1";
        out.stopping |= line == "STOPPING=1";
        out.exit_pipe |= line == exit_pipe_line;
        if (line.starts_with(name)) out.name = line.substr(name.size());
        if (line.starts_with(main_pid)) out.main_pid = pid_of(line.substr(main_pid.size()));
    });
    return out;
}

std::string to_pass_on(std::string_view text) {
    constexpr std::array<std::string_view, 5> passed{
        "READY=", "RELOADING=", "MONOTONIC_USEC=", "STATUS=", "EXTEND_TIMEOUT_USEC="};
    std::string out;
    for_each_line(text, [&](std::string_view line) {
        const bool wanted = std::any_of(passed.begin(), passed.end(), [&](std::string_view each) {
            return line.starts_with(each);
        });
        if (!wanted) return;
        if (!out.empty()) out += '\n';
        out += line;
    });
    return out;
}

}  // namespace gpunbd::server
