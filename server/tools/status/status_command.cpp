#include "server/tools/status/status_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "server/base/process.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/status_text.hpp"

namespace gpunbd::status {
namespace {

constexpr std::chrono::seconds status_patience{10};
constexpr std::chrono::seconds between_two{1};

// Returns the text to print. With --json that is the server's response.
Expected<std::string, Failure> fetch(const StatusOptions& command,
                                     const std::vector<std::string>& folders) {
    const Expected<AdminServer, Failure> server = find_server(command.server, folders);
    if (!server) return server.error();
    Expected<std::string, Failure> body =
        get(*server, {.target = "/api/v1/status"}, client::Clock::now() + status_patience);
    if (!body) return body;
    const Expected<Snapshot, Failure> status = read_status(*body);
    if (!status) {
        return Failure{server->address.text + ": " + status.error().text};
    }
    if (!command.json) return success(status_text(*status));
    return success(body->ends_with('\n') ? *body : *body + '\n');
}

void print_page(const std::string& text, bool again) {
    // Moves the cursor home and clears the rest afterwards, which avoids flicker.
    if (again && ::isatty(STDOUT_FILENO) == 1) {
        fmt::print("\x1b[H\x1b[2J{}", text);
    } else {
        fmt::print("{}", text);
    }
    std::fflush(stdout);
}

}  // namespace

int run_status(const StatusOptions& command, const std::vector<std::string>& folders) {
    for (bool answered = false;; answered = true) {
        const Expected<std::string, Failure> text = fetch(command, folders);
        if (!text) {
            server::report_failure("status", with_remedy(text.error()), command.json,
                                   server::exit_failure);
            if (!answered) return server::exit_failure;
        } else {
            print_page(*text, command.watch && !command.json);
        }
        if (!command.watch) return 0;
        std::this_thread::sleep_for(between_two);
    }
}

}  // namespace gpunbd::status
