#include "server/daemon/service.hpp"

#include <exception>
#include <ranges>
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

Service::Commit Service::reload(const config::Options& /*next*/, Problems& /*problems*/) {
    return {};
}

ServiceList::~ServiceList() {
    stop();
    while (!services_.empty()) services_.pop_back();
}

void ServiceList::open() {
    for (const auto& each : services_) each->open();
}

void ServiceList::start() {
    for (const auto& each : services_) each->start();
}

Service::Commit ServiceList::reload(const config::Options& next, Service::Problems& problems) {
    std::vector<Service::Commit> commits;
    for (const auto& each : services_) {
        try {
            if (Service::Commit commit = each->reload(next, problems)) {
                commits.push_back(std::move(commit));
            }
        } catch (const std::exception& error) {
            problems.emplace_back(error.what());
        }
        if (!problems.empty()) return {};
    }
    return [commits = std::move(commits)] {
        for (const Service::Commit& each : commits) each();
    };
}

void ServiceList::drain() {
    for (const auto& each : std::views::reverse(services_)) each->drain();
}

void ServiceList::hand_over() {
    for (const auto& each : std::views::reverse(services_)) each->hand_over();
}

void ServiceList::resume() {
    for (const auto& each : services_) each->resume();
}

void ServiceList::stop() {
    for (const auto& each : std::views::reverse(services_)) each->stop();
}

}  // namespace gpunbd::server
