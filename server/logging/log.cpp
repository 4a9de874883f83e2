#include "server/logging/log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/admin/model/event_log.hpp"
#include "server/base/process.hpp"
#include "server/logging/log_sink.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

constexpr auto progress_interval = std::chrono::seconds(1);
constexpr std::size_t bar_width = 20;

std::string amount(std::uint64_t value, std::string_view unit) {
    return unit == "bytes" ? config::human_size(value) : fmt::format("{} {}", value, unit);
}

constexpr auto patience = std::chrono::seconds(1);  // at the end, for a reader that takes nothing

using Out = spdlog::memory_buf_t;
using Message = spdlog::details::log_msg;

// A pattern flag that a function formats.
template <void show(const Message& message, const std::tm& time, Out& out)>
class Flag final : public spdlog::custom_flag_formatter {
 public:
    void format(const Message& message, const std::tm& time, Out& out) override {
        show(message, time, out);
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
        return std::make_unique<Flag>();
    }
};

void append(Out& out, std::string_view text) { out.append(text.data(), text.data() + text.size()); }

void show_json(const Message& message, const std::tm&, Out& out) {
    const storage::LogParts parts = storage::parts_of(message);
    append(out, config::repaired_utf8(R"("message":)" + storage::json_string(parts.text)));
    append(out, config::repaired_utf8(parts.fields));
}

// Replaces control characters that a terminal would interpret.
void show_text(const Message& message, const std::tm&, Out& out) {
    std::string_view text = storage::parts_of(message).text;
    for (; !text.empty(); text.remove_prefix(1)) {
        const char c = text[0];
        const bool c1 = config::is_c1_control(text);
        if (c1) text.remove_prefix(1);
        const bool c0 = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
        out.push_back(c0 || c1 ? '?' : c);
    }
}

// +0100: spdlog's own flag gives +01:00, the form of RFC 3339, which JSON uses.
void show_zone(const Message&, const std::tm& time, Out& out) {
    fmt::format_to(std::back_inserter(out), "{:%z}", time);
}

spdlog::color_mode color_mode() {
    const char* const no_color = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
    return no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never
                                                    : spdlog::color_mode::automatic;
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

std::unique_ptr<spdlog::formatter> log_formatter(config::LogFormat format) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Flag<show_json>>('*');
    formatter->add_flag<Flag<show_text>>('&');
    formatter->add_flag<Flag<show_zone>>('~');
    formatter->set_pattern(format == config::LogFormat::json
                               ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%*})"
                               : "%Y-%m-%d %H:%M:%S.%e %~ %^%l%$: %&");
    return formatter;
}

Log::Log(const config::LogOptions& options, int fd)
    : events_(std::make_shared<admin::EventLog>()),
      sink_(std::make_shared<LogSink>(fd, color_mode())) {
    const auto failed = std::make_shared<std::atomic<std::uint64_t>>(0);
    {
        const storage::SignalsBlocked blocked;
        thread_ = std::make_shared<spdlog::details::thread_pool>(max_waiting, 1, [] {
            ::pthread_setname_np(::pthread_self(), "log");
            give_up_new_privileges();  // the thread may start before the process gives them up
        });
    }
    sink_->count_dropped_by([pool = thread_.get(), failed] {
        return pool->overrun_counter() + failed->load(std::memory_order_relaxed);
    });
    const spdlog::sinks_init_list sinks{std::make_shared<admin::EventSink>(events_), sink_};
    auto logger = std::make_shared<spdlog::async_logger>(
        "gpunbd", sinks, thread_, spdlog::async_overflow_policy::overrun_oldest);
    logger->set_formatter(log_formatter(options.format));
    logger->set_level(spdlog::level::from_str(options.level));
    // Counts a line for which there is no memory. spdlog's default handler would block on standard
    // error.
    logger->set_error_handler([failed](const std::string&) { ++*failed; });
    spdlog::set_default_logger(std::move(logger));
}

Log::~Log() {
    spdlog::default_logger_raw()->flush();
    bool done = sink_->wait_until_flushed(patience);
    if (!done) {
        sink_->give_up();
        done = sink_->wait_until_flushed(patience);
    }
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("ended", std::make_shared<spdlog::sinks::null_sink_mt>()));
    if (done) return;
    // Another process has filled the pipe after poll() reported room: the thread blocks in write().
    // Waiting for it could block this thread too, so the objects are leaked.
    static_cast<void>(new std::shared_ptr<void>(std::move(thread_)));
    static_cast<void>(new std::shared_ptr<void>(std::move(sink_)));
}

}  // namespace gpunbd::server
