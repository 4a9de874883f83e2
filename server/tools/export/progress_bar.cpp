#include "server/tools/export/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stop_token>
#include <utility>

#include "config/size.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/snapshot.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::status {
namespace {

constexpr std::chrono::milliseconds interval{500};
constexpr std::chrono::seconds status_patience{5};
constexpr const char* clear_line = "\r\033[K";

void draw(const AdminServer& server, const std::string& what, const std::string& of) {
    const auto body =
        get(server, {.target = "/api/v1/status"}, client::Clock::now() + status_patience);
    if (std::holds_alternative<Failure>(body)) return;
    const auto status = read_status(std::get<std::string>(body));
    const auto* const snapshot = std::get_if<Snapshot>(&status);
    if (snapshot == nullptr) return;
    for (const ProgressFigures& each : snapshot->progress) {
        if (each.what != what || each.of != of) continue;
        fmt::print(stderr, "{}{}", clear_line, progress_line(what, of, each.done, each.total));
        std::fflush(stderr);
    }
}

}  // namespace

std::string progress_line(const std::string& what, const std::string& of, std::uint64_t done,
                          std::uint64_t total) {
    constexpr std::size_t width = 20;
    const double share =
        total == 0 ? 0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
    return fmt::format("{} {}: {} of {} [{}{}]", what, of, config::human_size(done),
                       config::human_size(total), std::string(full, '#'),
                       std::string(width - full, '-'));
}

ProgressBar::ProgressBar(AdminServer server, std::string what, std::string of) {
    if (::isatty(STDERR_FILENO) != 1) return;
    thread_ = std::jthread([server = std::move(server), what = std::move(what),
                            of = std::move(of)](const std::stop_token& stop) {
        Mutex mutex;
        StoppableCondition stopped;
        const Lock lock(mutex);
        while (!stopped.wait_for(mutex, stop, interval, [&] { return stop.stop_requested(); })) {
            draw(server, what, of);
        }
        fmt::print(stderr, "{}", clear_line);
    });
}

ProgressBar::~ProgressBar() = default;

}  // namespace gpunbd::status
