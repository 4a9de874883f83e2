#include "server/daemon/poll.hpp"

#include <utility>

namespace gpunbd::server {

Poll::Poll(boost::asio::io_context& io, std::chrono::microseconds interval, Round round)
    : timer_(io), interval_(interval), round_(std::move(round)) {}

void Poll::start() {
    active_ = true;
    arm();
}

void Poll::resume() {
    if (active_) arm();
}

void Poll::stop() {
    active_ = false;
    timer_.cancel();
}

void Poll::arm() {
    if (armed_) return;
    timer_.expires_after(interval_);
    timer_.async_wait([this](boost::system::error_code error) {
        armed_ = false;
        if (error || !active_) return;
        if (round_()) {
            arm();
        } else {
            active_ = false;
        }
    });
    armed_ = true;
}

}  // namespace gpunbd::server
