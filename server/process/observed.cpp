#include "server/process/observed.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "config/build_text.hpp"
#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

NotDone no_export(std::string_view name) {
    return {.why = fmt::format("there is no export {}", config::in_quotes(name)), .unknown = true};
}

ExportStatus status_of(const Export& each) {
    ExportStatus out;
    out.name = each.info.name;
    out.description = each.info.description;
    out.size = each.info.size;
    out.page_size = each.volume->page_size();
    out.layout = each.options.layout == config::LayoutKind::stripe ? "stripe" : "linear";
    out.provision = each.options.provision == config::Provision::full ? "full" : "thin";
    out.read_only = each.info.read_only;
    out.keep = each.options.keep;
    out.swap = each.options.swap;
    out.instance = each.info.instance;
    return out;
}

}  // namespace

Observed::Observed(const ExportRegistry& exports)
    : exports_(exports), started_(seconds_since_1970()) {}

Status Observed::status() {
    Status out;
    out.time = seconds_since_1970();
    out.process.version = config::version_text();
    out.process.pid = static_cast<std::uint64_t>(::getpid());
    out.process.started = started_;
    out.process.state = "serving";
    const auto exports = exports_.snapshot();
    for (const auto& each : *exports) {
        out.exports.push_back(status_of(*each));
        for (const storage::Device* device : each->volume->devices()) {
            const storage::DeviceInfo& info = device->info();
            const auto known = [&](const DeviceStatus& other) { return other.id == info.id; };
            if (std::any_of(out.devices.begin(), out.devices.end(), known)) continue;
            DeviceStatus& status = out.devices.emplace_back();
            status.id = info.id;
            status.name = info.name;
            status.failed = device->failed();
            status.total = info.total;
            status.reserve = info.reserve;
            status.available = device->available();
        }
    }
    return out;
}

std::optional<ExportMap> Observed::map(std::string_view name, std::uint64_t offset, std::uint64_t,
                                       std::uint32_t) {
    const auto found = exports_.open(name);
    if (!found) return std::nullopt;
    const std::uint64_t page = found->volume->page_size();
    return ExportMap{.size = found->info.size,
                     .page_size = page,
                     .offset = std::min(offset, found->info.size),
                     .length = 0,
                     .cell = page,
                     .used = {},
                     .read = {},
                     .written = {}};
}

std::optional<PageRuns> Observed::pages(std::string_view name, std::uint64_t, std::uint64_t,
                                        std::size_t) {
    const auto found = exports_.open(name);
    if (!found) return std::nullopt;
    return PageRuns{.page_size = found->volume->page_size(), .runs = {}, .next = std::nullopt};
}

Outcome Observed::end_connection(std::uint64_t id) {
    return NotDone{.why = fmt::format("there is no connection {}", id), .unknown = true};
}

Outcome Observed::set_log_level(std::string_view level) {
    spdlog::set_level(spdlog::level::from_str(std::string(level)));
    return Done{fmt::format("the log tells {} and what is worse", level)};
}

Outcome Observed::set_rates(std::string_view name, const RateStatus&) {
    if (!exports_.open(name)) return no_export(name);
    return NotDone{.why = "rates stay as they are configured"};
}

Outcome Observed::set_read_only(std::string_view name, bool) {
    if (!exports_.open(name)) return no_export(name);
    return NotDone{.why = "exports stay as they are configured"};
}

}  // namespace gpunbd::server
