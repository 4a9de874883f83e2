#include "server/daemon/omitted_lines.hpp"

#include <boost/asio/post.hpp>

namespace gpunbd::server {

namespace {

constexpr auto report_interval = std::chrono::seconds(1);

void report_later(boost::asio::steady_timer& timer, LineLimit& limit) {
    timer.expires_after(report_interval);
    timer.async_wait([&limit](boost::system::error_code error) {
        if (!error) log_omitted_lines(limit);
    });
}

}  // namespace

void OmittedLines::start() {
    timer_ = std::make_shared<boost::asio::steady_timer>(io_);
    limit_.when_omitted([&io = io_, &limit = limit_, weak = std::weak_ptr(timer_)] {
        boost::asio::post(io, [&limit, weak] {
            if (const auto timer = weak.lock()) report_later(*timer, limit);
        });
    });
}

void OmittedLines::stop() {
    limit_.when_omitted(nullptr);
    timer_.reset();
    log_omitted_lines(limit_);
}

}  // namespace gpunbd::server
