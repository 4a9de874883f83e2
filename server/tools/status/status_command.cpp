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
Or<std::string> fetch(const StatusOptions& command, const std::vector<std::string>& folders) {
    const Or<AdminServer> server = find_server(command.server, folders);
    if (const auto* const failed = std::get_if<Failure>(&server)) return *failed;
    Or<std::string> body = get(std::get<AdminServer>(server), {.target = "/api/v1/status"},
                               client::Clock::now() + status_patience);
    auto* const json = std::get_if<std::string>(&body);
    if (json == nullptr) return body;
    const Or<Snapshot> status = read_status(*json);
    if (const auto* const failed = std::get_if<Failure>(&status)) {
        return Failure{std::get<AdminServer>(server).address.text + ": " + failed->text};
    }
    if (!command.json) return status_text(std::get<Snapshot>(status));
    return json->ends_with('\n') ? *json : *json + '\n';
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
        const Or<std::string> text = fetch(command, folders);
        if (const auto* const failed = std::get_if<Failure>(&text)) {
            server::report_failure("status", with_remedy(*failed), command.json,
                                   server::exit_failure);
            if (!answered) return server::exit_failure;
        } else {
            print_page(std::get<std::string>(text), command.watch && !command.json);
        }
        if (!command.watch) return 0;
        std::this_thread::sleep_for(between_two);
    }
}

}  // namespace gpunbd::status
