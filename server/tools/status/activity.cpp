#include "server/tools/status/activity.hpp"

namespace gpunbd::status {
namespace {

// Counters only grow, so a smaller value belongs to another object.
double grown(std::uint64_t before, std::uint64_t now, double seconds) {
    return now > before ? static_cast<double>(now - before) / seconds : 0;
}

std::map<std::string, const ExportFigures*> exports_by_name(const Snapshot& status) {
    std::map<std::string, const ExportFigures*> out;
    for (const ExportFigures& each : status.exports) out.emplace(each.name, &each);
    return out;
}

}  // namespace

Rates Activity::of_export(const std::string& name) const {
    const auto found = exports.find(name);
    return found == exports.end() ? Rates{} : found->second;
}

Rates Activity::of_connection(std::uint64_t id) const {
    const auto found = connections.find(id);
    return found == connections.end() ? Rates{} : found->second;
}

std::optional<Activity> activity_between(const Tick& before, const Tick& now) {
    const ProcessFigures& then = before.status.process;
    const ProcessFigures& process = now.status.process;
    const double seconds = process.uptime - then.uptime;
    if (!(seconds > 0) || then.pid != process.pid || then.started != process.started) {
        return std::nullopt;
    }
    Activity out;
    if (process.cpu_seconds > then.cpu_seconds) {
        out.cpus = (process.cpu_seconds - then.cpu_seconds) / seconds;
    }
    const auto old_exports = exports_by_name(before.status);
    for (const ExportFigures& each : now.status.exports) {
        const auto old = old_exports.find(each.name);
        if (old == old_exports.end()) continue;
        const ExportFigures& was = *old->second;
        out.exports[each.name] = {
            .read = grown(was.bytes_of("read"), each.bytes_of("read"), seconds),
            .written = grown(was.bytes_of("write"), each.bytes_of("write"), seconds),
            .requests = grown(was.total(&RequestFigures::requests),
                              each.total(&RequestFigures::requests), seconds),
            .errors = grown(was.total(&RequestFigures::errors), each.total(&RequestFigures::errors),
                            seconds)};
    }
    std::map<std::uint64_t, const ConnectionFigures*> old_connections;
    for (const ConnectionFigures& each : before.connections) old_connections[each.id] = &each;
    for (const ConnectionFigures& each : now.connections) {
        const auto old = old_connections.find(each.id);
        if (old == old_connections.end()) continue;
        const ConnectionFigures& was = *old->second;
        out.connections[each.id] = {.read = grown(was.read, each.read, seconds),
                                    .written = grown(was.written, each.written, seconds),
                                    .requests = grown(was.requests, each.requests, seconds),
                                    .errors = grown(was.errors, each.errors, seconds)};
    }
    return out;
}

}  // namespace gpunbd::status
