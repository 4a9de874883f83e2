#include "server/daemon/service.hpp"

#include <exception>
#include <ranges>

namespace gpunbd::server {

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
