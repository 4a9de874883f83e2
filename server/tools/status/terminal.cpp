#include "server/tools/status/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace gpunbd::status {
namespace {

constexpr std::string_view other_screen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view former_screen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// Gives up on a terminal that does not accept output; a signal reports its end.
void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) return;
        if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace

bool Terminal::exists() {
    const char* const kind = std::getenv("TERM");
    const std::string_view name = kind == nullptr ? "" : kind;
    return ::isatty(STDOUT_FILENO) == 1 && !name.empty() && name != "dumb";
}

Terminal::Terminal()
    : has_keys_(::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &modes_) == 0) {
    enter();
}

Terminal::~Terminal() { leave(); }

void Terminal::enter() {
    if (has_keys_) {
        termios modes = modes_;
        // The keys for signals keep their meaning.
        modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        modes.c_cc[VMIN] = 0;
        modes.c_cc[VTIME] = 0;
        ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
    }
    write_all(other_screen);
    entered_ = true;
}

void Terminal::leave() {
    if (!entered_) return;
    entered_ = false;
    write_all(former_screen);
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_);
}

PageSize Terminal::size() const {
    winsize window{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0 ||
        window.ws_col == 0) {
        return {};
    }
    constexpr std::size_t most = 1000;
    return {.rows = std::min<std::size_t>(window.ws_row, most),
            .columns = std::min<std::size_t>(window.ws_col, most)};
}

void Terminal::show(const std::vector<std::string>& lines) {
    std::string page = "\x1b[H";
    for (std::size_t i = 0; i != lines.size(); ++i) page += (i == 0 ? "" : "\r\n") + lines[i];
    write_all(page);
}

}  // namespace gpunbd::status
