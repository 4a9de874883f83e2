#include "server/tools/status/status_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "config/size.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {
namespace {

constexpr std::size_t widest_entry = 48;  // columns

using Row = std::vector<std::string>;

// The first column is left-aligned, the others right-aligned except the last one.
std::string table(const std::vector<Row>& rows) {
    std::vector<std::size_t> widths(rows[0].size());
    for (const Row& row : rows) {
        for (std::size_t i = 0; i != row.size(); ++i) {
            widths[i] = std::max(widths[i], std::min(columns_of(row[i]), widest_entry));
        }
    }
    std::string out;
    for (const Row& row : rows) {
        for (std::size_t i = 0; i + 1 != row.size(); ++i) {
            const std::size_t columns = std::min(columns_of(row[i]), widths[i]);
            if (i != 0) out.append(widths[i] - columns, ' ');
            out += fitted(row[i], i == 0 ? widths[i] : columns) + "  ";
        }
        out += row.back() + '\n';
    }
    return out;
}

std::string size(std::uint64_t bytes) { return config::human_size(bytes); }

std::string counted(std::uint64_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string origin_text(const ExportFigures& exported, const server::OriginStatus& origin) {
    std::string out = fmt::format("{} caches {}", exported.name, origin.path);
    const std::uint64_t requests = exported.total(&RequestFigures::requests);
    if (requests != 0) {
        const std::uint64_t hits = requests - std::min(requests, origin.misses);
        out +=
            fmt::format(": {}% of its requests found their pages in memory", 100 * hits / requests);
    }
    out += fmt::format("; {} fetched, {} prefetched ({} of them unused), {} dropped",
                       counted(origin.fetched, "page"), origin.prefetched, origin.wasted,
                       origin.evicted);
    if (origin.written != 0) out += fmt::format(", {} written", size(origin.written));
    if (origin.unwritten != 0) {
        out += fmt::format(", {} unwritten for {:.0f} s", size(origin.unwritten),
                           origin.unwritten_age);
    }
    out += fmt::format(", {}\n", counted(origin.errors, "error"));
    if (origin.requests.empty()) return out;
    const auto times = [](const server::OriginRequests& of) {
        return fmt::format("{} p50 {}, p99 {}, longest {}", of.operation, short_duration(of.p50),
                           short_duration(of.p99), short_duration(of.longest));
    };
    out += fmt::format("{} requests of {}: {}", exported.name, origin.path,
                       times(origin.requests.front()));
    for (std::size_t i = 1; i != origin.requests.size(); ++i)
        out += "; " + times(origin.requests[i]);
    return out + '\n';
}

std::string server_line(const Snapshot& status) {
    const ProcessFigures& process = status.process;
    std::string out =
        fmt::format("gpunbd {}{}, pid {}, {} for {}: {}, {}", process.version,
                    process.commit.empty() ? "" : fmt::format(" ({})", process.commit), process.pid,
                    process.state, short_age(process.uptime), counted(process.workers, "worker"),
                    counted(status.connections, "connection"));
    if (status.refused > 0) out += fmt::format(", {} refused", status.refused);
    if (status.failed_handshakes > 0) {
        out += ", " + counted(status.failed_handshakes, "failed handshake");
    }
    return out + '\n';
}

std::string remarks(const DeviceFigures& device) {
    std::string out = device.failed ? " (failed)" : "";
    if (device.spilled != 0) out += fmt::format(" ({} moved elsewhere)", size(device.spilled));
    if (device.limit) out += fmt::format(" (limited to {})", size(*device.limit));
    return out;
}

Row device_row(const DeviceFigures& device) {
    return {device.id,
            size(device.total),
            size(device.available),
            size(device.allocated),
            size(device.used),
            device.name + remarks(device)};
}

std::string claims_text(const Snapshot& status) {
    std::string out;
    for (const DeviceFigures& device : status.devices) {
        for (const server::ClaimStatus& each : device.claims) {
            out +=
                fmt::format("claim {} on {}: {} given back, {} asked, by {} {} ago; ends {}\n",
                            each.id, device.id, size(each.bytes),
                            each.asked ? size(*each.asked) : "all", each.owner, short_age(each.age),
                            each.ends_in ? fmt::format("in {}", short_age(*each.ends_in))
                                         : fmt::format("by gpunbd reclaim {} --end", each.id));
        }
    }
    return out;
}

Row export_row(const ExportFigures& exported) {
    return {exported.name.empty() ? "''" : exported.name,
            size(exported.size),
            size(exported.used),
            fmt::format("{}%", percent(exported.used, exported.size)),
            exported.stalled == 0
                ? fmt::format("{}", exported.connections)
                : fmt::format("{} ({} stalled)", exported.connections, exported.stalled),
            fmt::format("{}", exported.total(&RequestFigures::requests)),
            size(exported.bytes_of("read")),
            size(exported.bytes_of("write")),
            fmt::format("{}", exported.total(&RequestFigures::errors))};
}

Row contents_row(const server::ContentsStatus& contents) {
    return {contents.name.empty() ? "''" : contents.name,
            size(contents.size),
            size(contents.sum(&server::ExportMemory::used)),
            size(contents.own),
            size(contents.sum(&server::ExportMemory::allocated)),
            contents.freed_in
                ? fmt::format("{}; freed in {}", contents.state, short_age(*contents.freed_in))
                : contents.state};
}

}  // namespace

unsigned percent(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return 0;
    const double share = static_cast<double>(part) / static_cast<double>(whole);
    return static_cast<unsigned>(std::min(share, 1.0) * 100);
}

std::string progress_text(const ProgressFigures& progress) {
    const auto amount = [&](std::uint64_t count) {
        return progress.unit == "bytes" ? size(count) : fmt::format("{} {}", count, progress.unit);
    };
    const std::string head = fmt::format("{} {}: ", progress.what, progress.of);
    if (progress.total == 0) return head + amount(progress.done);
    return fmt::format("{}{}%, {} of {}", head, percent(progress.done, progress.total),
                       amount(progress.done), amount(progress.total));
}

std::string status_text(const Snapshot& status) {
    std::string out = server_line(status);
    for (const ProgressFigures& each : status.progress) out += progress_text(each) + '\n';
    std::vector<Row> rows{{"DEVICE", "TOTAL", "AVAILABLE", "ALLOCATED", "USED", "NAME"}};
    for (const DeviceFigures& each : status.devices) rows.push_back(device_row(each));
    out += '\n' + table(rows) + claims_text(status);
    rows = {{"EXPORT", "SIZE", "USED", "%", "CLIENTS", "REQUESTS", "READ", "WRITTEN", "ERRORS"}};
    for (const ExportFigures& each : status.exports) rows.push_back(export_row(each));
    out += '\n' + table(rows);
    if (!status.contents.empty()) {
        rows = {{"WITHOUT EXPORT", "SIZE", "USED", "OWN", "ALLOCATED", "STATE"}};
        for (const auto& each : status.contents) rows.push_back(contents_row(each));
        out += '\n' + table(rows);
    }
    for (const ExportFigures& exported : status.exports) {
        for (const server::TemplateStatus& each : exported.templates) {
            out += fmt::format("{} makes a clone of {} for each client: {} of {}\n", each.name,
                               exported.name, each.clones, each.max);
        }
        for (const server::OriginStatus& each : exported.origins) {
            out += origin_text(exported, each);
        }
    }
    return out;
}

}  // namespace gpunbd::status
