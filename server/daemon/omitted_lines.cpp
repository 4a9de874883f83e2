#include "server/daemon/omitted_lines.hpp"

#include <boost/asio/post.hpp>

#include "server/base/line_limit.hpp"

namespace gpunbd::server {

namespace {

constexpr auto report_interval = std::chrono::seconds(1);

}  // namespace

void OmittedLines::start() {
    client_lines().when_omitted([this] { boost::asio::post(io_, [this] { report_later(); }); });
}

void OmittedLines::stop() {
    client_lines().when_omitted(nullptr);
    log_omitted_lines();
}

void OmittedLines::report_later() {
    timer_.expires_after(report_interval);
    timer_.async_wait([](boost::system::error_code error) {
        if (!error) log_omitted_lines();
    });
}

}  // namespace gpunbd::server
