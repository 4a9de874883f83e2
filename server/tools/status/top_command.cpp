#include "server/tools/status/top_command.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "server/base/process.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/status/feed.hpp"
#include "server/tools/status/terminal.hpp"
#include "server/tools/status/top_page.hpp"

namespace gpunbd::status {
namespace {

constexpr std::chrono::seconds longest_wait{
    1};  // the page shows how long the server has not answered

bool colours_wanted() {
    const char* const without = std::getenv("NO_COLOR");  // https://no-color.org
    return without == nullptr || *without == 0;
}

// The descriptors that are readable.
struct Ready {
    bool signals = false;
    bool keys = false;
};

Ready wait_for(const Signals& signals, bool keys, const Feed& feed) {
    std::array<pollfd, 3> watched{{{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0},
                                   {.fd = feed.fd(), .events = POLLIN, .revents = 0}}};
    const auto until = std::min(feed.next(), client::Clock::now() + longest_wait);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - client::Clock::now()).count();
    ::poll(watched.data(), watched.size(), static_cast<int>(std::max<long>(left, 0)));
    return {.signals = watched[0].revents != 0, .keys = watched[1].revents != 0};
}

// A page on a terminal, controlled by keys.
class LivePage {
 public:
    explicit LivePage(Feed& feed) : feed_(feed) {}

    void run() {
        while (!ended_) {
            // A long response arrives in many pieces.
            if (feed_.step() || client::Clock::now() >= shown_ + longest_wait) show();
            const Ready ready = wait_for(signals_, has_keys_, feed_);
            if (ready.keys) read_keys();
            if (ready.signals) obey_signals();
            if (ready.keys || ready.signals) show();
        }
    }

 private:
    void show() {
        const Canvas page = draw(feed_.picture(), view_, terminal_.size());
        terminal_.show(page.lines(colours_));
        shown_ = client::Clock::now();
    }

    void read_keys() {
        std::array<char, 256> bytes{};
        const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
        // After a hang-up the terminal stays readable.
        if (got <= 0) has_keys_ = false;
        if (got <= 0) return;
        for (const Key key : keys_.take({bytes.data(), static_cast<std::size_t>(got)})) {
            if (key == Key::quit) ended_ = true;
            handle_key(key, feed_.picture(), terminal_.size(), view_);
        }
    }

    void obey_signals() {
        while (const auto number = signals_.take()) {
            if (*number == SIGTSTP) {
                terminal_.leave();
                Signals::stop();
                terminal_.enter();
            } else if (*number == SIGCONT) {
                terminal_.enter();
            } else if (*number != SIGWINCH) {
                ended_ = true;
            }
        }
    }

    Feed& feed_;
    Signals signals_;
    Terminal terminal_;
    KeyReader keys_;
    View view_;
    const bool colours_ = colours_wanted();
    bool has_keys_ = terminal_.has_keys();
    client::Clock::time_point shown_{};
    bool ended_ = false;
};

bool ends(Signals& signals) {
    while (const auto number = signals.take()) {
        if (*number == SIGTSTP) Signals::stop();
        if (*number != SIGTSTP && *number != SIGCONT && *number != SIGWINCH) return true;
    }
    return false;
}

// Prints the page each second, without the row of the keys.
void print_page(const Picture& picture) {
    constexpr std::size_t columns = 80;
    std::vector<std::string> lines =
        draw(picture, {}, {.rows = rows_for_all(picture), .columns = columns}).lines(false);
    lines.pop_back();
    for (std::string& line : lines) {
        line.erase(line.find_last_not_of(' ') + 1);
        fmt::print("{}\n", line);
    }
    fmt::print("\n");
    std::fflush(stdout);
}

void print_pages(Feed& feed) {
    Signals signals;
    while (!ends(signals)) {
        if (feed.step()) print_page(feed.picture());
        wait_for(signals, false, feed);
    }
}

}  // namespace

int run_top(const ServerSelection& server, const std::vector<std::string>& folders) {
    Feed feed(server, folders);
    if (const auto failed = feed.begin()) {
        fmt::print(stderr, "gpunbd top: {}\n", with_remedy(*failed));
        return server::exit_failure;
    }
    if (Terminal::exists()) {
        LivePage(feed).run();
    } else {
        print_pages(feed);
    }
    return 0;
}

}  // namespace gpunbd::status
