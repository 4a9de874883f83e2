#include "server/nbd/failure_log.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "protocol/constants.hpp"
#include "server/base/line_limit.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

namespace {

constexpr auto report_interval = std::chrono::seconds(1);

// The devices that may have caused the failure: those that have failed permanently, otherwise all
// devices of the volume, and its origin.
std::string suspects(const storage::Volume& volume, storage::Status status) {
    std::string all;
    std::string failed;
    for (const storage::Device* device : volume.devices()) {
        const std::string& id = device->info().id;
        all += (all.empty() ? "" : ", ") + id;
        if (device->failed()) failed += (failed.empty() ? "" : ", ") + id;
    }
    if (volume.cache() != nullptr) all += ", " + volume.cache()->name();
    return failed.empty() || status == storage::Status::no_space ? all : failed;
}

}  // namespace

void FailureLog::report_refusal(const protocol::Refusal& refusal) {
    // Clients probe for features with requests that get ENOTSUP. Every client gets ESHUTDOWN at the
    // end.
    const bool usual =
        refusal.error == protocol::Error::enotsup || refusal.error == protocol::Error::eshutdown;
    if (usual ? !spdlog::should_log(spdlog::level::debug) : !may_report()) return;
    const std::string_view error = protocol::name_of(refusal.error);
    const std::string_view request =
        protocol::name_of(static_cast<protocol::CommandType>(refusal.type));
    ClientLine(usual ? spdlog::level::debug : spdlog::level::warn)
        .with("peer", peer_)
        .with("export", export_name_)
        .with("request", request)
        .with("offset", refusal.offset)
        .with("error", error)
        .log("{}: export {}: {} at offset {} refused: {}: {}{}", peer_,
             config::in_quotes(export_name_), request, refusal.offset, error, refusal.text,
             usual ? "" : take_unreported_text());
}

void FailureLog::report_failure(const protocol::Command& command, storage::Status status,
                                const storage::Volume& volume) {
    if (!may_report()) return;
    const std::string_view request = protocol::name_of(command.type);
    const std::string_view error = protocol::name_of(wire_error(status));
    const std::string devices = suspects(volume, status);
    ClientLine(spdlog::level::warn)
        .with("peer", peer_)
        .with("export", export_name_)
        .with("request", request)
        .with("offset", command.offset)
        .with("length", command.length)
        .with("error", error)
        .with("device", devices)
        .with("unreported", unreported_)
        .log("{}: export {}: {} of {} at offset {} failed: {}: {} {}{}", peer_,
             config::in_quotes(export_name_), request, config::human_size(command.length),
             command.offset, error,
             status == storage::Status::no_space ? "no space left on" : "an error of", devices,
             take_unreported_text());
}

bool FailureLog::may_report() {
    const Clock::time_point now = Clock::now();
    if (last_report_ != Clock::time_point{} && now - last_report_ < report_interval) {
        ++unreported_;
        return false;
    }
    last_report_ = now;
    return true;
}

std::string FailureLog::take_unreported_text() {
    const std::uint64_t count = std::exchange(unreported_, 0);
    return count == 0 ? "" : fmt::format(" ({} more since the last line)", count);
}

}  // namespace gpunbd::server
