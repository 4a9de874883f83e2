#include "server/daemon/omitted_lines.hpp"

namespace gpunbd::server {

namespace {

constexpr auto report_interval = std::chrono::seconds(1);

}  // namespace

void OmittedLines::start() {
    calls_.emplace(io_);
    limit_.when_omitted([this, calls = calls_->poster()] {  // any thread, perhaps after stop()
        calls.post([this] { report_later(); });
    });
}

void OmittedLines::stop() {
    limit_.when_omitted(nullptr);
    calls_.reset();
    timer_.cancel();
    log_omitted_lines(limit_);
}

void OmittedLines::report_later() {
    timer_.expires_after(report_interval);
    timer_.async_wait([&limit = limit_](boost::system::error_code error) {
        if (!error) log_omitted_lines(limit);
    });
}

}  // namespace gpunbd::server
