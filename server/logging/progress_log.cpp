#include "server/logging/progress_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "config/size.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

constexpr auto progress_interval = std::chrono::seconds(1);
constexpr std::size_t bar_width = 20;

std::string amount(std::uint64_t value, std::string_view unit) {
    return unit == "bytes" ? config::human_size(value) : fmt::format("{} {}", value, unit);
}

}  // namespace

std::string progress_text(const storage::LongWork::Progress& work, bool bar) {
    std::string text = work.what;
    if (!work.of.empty()) text += ' ' + work.of;
    if (work.total == 0) return text;
    const std::uint64_t done = std::min(work.done, work.total);
    const double share = static_cast<double>(done) / static_cast<double>(work.total);
    text += fmt::format(": {} of {} ({:.0f}%)", amount(done, work.unit),
                        amount(work.total, work.unit), share * 100);
    if (!bar) return text;
    const auto full = static_cast<std::size_t>(share * static_cast<double>(bar_width));
    return text + " [" + std::string(full, '#') + std::string(bar_width - full, '-') + ']';
}

ProgressLog::ProgressLog(boost::asio::io_context& io)
    : timer_(io), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLog::watch(std::function<bool()> lasts) {
    lasts_ = std::move(lasts);
    if (!watching_) schedule_update();
}

void ProgressLog::schedule_update() {
    watching_ = true;
    timer_.expires_after(progress_interval);
    timer_.async_wait([this](boost::system::error_code error) {
        watching_ = false;
        if (error) return;
        log_progress();
        if (lasts_()) schedule_update();
    });
}

void ProgressLog::log_progress() const {
    const auto now = storage::LongWork::Clock::now();
    for (const auto& work : storage::LongWork::in_progress()) {
        if (now - work.began < progress_interval) continue;
        storage::LogLine(spdlog::level::info)
            .with("work", work.what)
            .with("of", work.of)
            .with("done", work.done)
            .with("total", work.total)
            .log("{}", progress_text(work, terminal_));
    }
}

}  // namespace gpunbd::server
