#include "server/tools/status/terminal.hpp"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace gpunbd::status {

namespace {

using Meaning = std::pair<std::string_view, Key>;

constexpr std::array<Meaning, 6> letter_keys{{{"q", Key::quit},
                                              {"s", Key::sort},
                                              {"e", Key::only_one},
                                              {"?", Key::explain},
                                              {"k", Key::up},
                                              {"j", Key::down}}};
// VT220 sequences; the second form of the arrows is that of the "application mode".
constexpr std::array<Meaning, 6> sequences{{{"\x1b[A", Key::up},
                                            {"\x1bOA", Key::up},
                                            {"\x1b[B", Key::down},
                                            {"\x1bOB", Key::down},
                                            {"\x1b[5~", Key::page_up},
                                            {"\x1b[6~", Key::page_down}}};

template <std::size_t n>
std::optional<Key> meaning(const std::array<Meaning, n>& known, std::string_view typed) {
    for (const auto& [text, key] : known) {
        if (text == typed) return key;
    }
    return std::nullopt;
}

bool ends_sequence(std::string_view typed) {
    if (typed.size() < 2) return false;
    if (typed.size() == 2) return typed[1] != '[' && typed[1] != 'O';
    return typed.back() >= '@' && typed.back() <= '~';
}

constexpr std::array<int, 7> handled_signals{SIGINT,  SIGTERM,  SIGHUP, SIGQUIT,
                                             SIGTSTP, SIGWINCH, SIGCONT};

sigset_t set_of_taken() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int each : handled_signals) ::sigaddset(&set, each);
    return set;
}

int blocked_taken(sigset_t& before) {
    const sigset_t set = set_of_taken();
    ::sigprocmask(SIG_BLOCK, &set, &before);
    const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
    return fd;
}

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

std::vector<Key> KeyReader::take(std::string_view bytes) {
    constexpr std::size_t longest = 16;
    std::vector<Key> out;
    for (const char byte : bytes) {
        const bool begins = byte == '\x1b';
        if (begins || !pending_.empty()) {
            if (begins) pending_.clear();
            pending_ += byte;
            if (const auto key = meaning(sequences, pending_)) out.push_back(*key);
            if (ends_sequence(pending_) || pending_.size() > longest) pending_.clear();
        } else if (const auto key = meaning(letter_keys, {&byte, 1})) {
            out.push_back(*key);
        }
    }
    return out;
}

Signals::Signals() : fd_(blocked_taken(before_)) {}

Signals::~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> Signals::take() {
    signalfd_siginfo one{};
    if (::read(fd_.get(), &one, sizeof one) != sizeof one) return std::nullopt;
    return static_cast<int>(one.ssi_signo);
}

void Signals::stop() {
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    // SIGTSTP is delivered here. The kernel ignores it if no shell could resume the process.
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

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
