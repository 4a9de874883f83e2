#include <fmt/format.h>

#include <iterator>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "config/yaml_file.hpp"

namespace gpunbd::config {
namespace {

class Writer {
 public:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
        out_ += '\n';
    }
    std::string take() { return std::move(out_); }

 private:
    std::string out_;
};

std::string bytes(std::uint64_t value) { return format_size({.bytes = value}); }

void write_listeners(Writer& out, const Options& options) {
    // Written out, a default would be a demand.
    if (options.tcp == default_listeners(TcpListener{}.port) && options.unix_sockets.empty()) {
        out.line("# listeners: port {} of 127.0.0.1 and, where there is IPv6, ::1",
                 TcpListener{}.port);
        return;
    }
    out.line("listeners:");
    out.line("  tcp:{}", options.tcp.empty() ? " []" : "");
    for (const TcpListener& tcp : options.tcp) {
        out.line("    - address: {}", yaml_quoted(tcp.address));
        out.line("      port: {}", tcp.port);
    }
    out.line("  unix:{}", options.unix_sockets.empty() ? " []" : "");
    for (const UnixListener& socket : options.unix_sockets) {
        out.line("    - path: {}", yaml_quoted(socket.path));
        out.line("      mode: {:04o}", socket.mode);
        out.line("      owner: {}", yaml_quoted(socket.owner));
    }
}

void write_devices(Writer& out, const Options& options) {
    out.line("devices:{}", options.devices.empty() ? " []  # each with its own defaults" : "");
    for (const DeviceOptions& device : options.devices) {
        out.line("  - id: {}", device.id);
        if (device.reserve) out.line("    reserve: {}", bytes(*device.reserve));
        if (device.capacity) out.line("    capacity: {}", bytes(*device.capacity));
        if (device.id == "host") continue;
        if (device.mapped) out.line("    mapped: {}", bytes(*device.mapped));
        out.line("    persistent_kernel: {}", device.persistent_kernel);
    }
}

void write_exports(Writer& out, const Options& options) {
    out.line("exports:{}", options.exports.empty() ? " []" : "");
    for (const ExportOptions& exported : options.exports) {
        out.line("  - name: {}", yaml_quoted(exported.name));
        out.line("    description: {}", yaml_quoted(exported.description));
        if (exported.size) {
            out.line("    size: {}", format_size(*exported.size));
        } else {
            out.line("    # size: 100%, or 1G of the host where no GPU can be used");
        }
        out.line("    devices:{}", exported.devices.empty() ? " []  # chosen at start" : "");
        for (const std::string& id : exported.devices) out.line("      - {}", id);
        out.line("    layout: {}", rules::text_of(exported.layout));
        if (exported.stripe_size > 0) out.line("    stripe_size: {}", bytes(exported.stripe_size));
        out.line("    provision: {}", rules::text_of(exported.provision));
        out.line("    page_size: {}", bytes(exported.page_size));
        out.line("    read_only: {}", exported.read_only);
    }
}

void write_connection_shares(Writer& out, const Limits& limits) {
    // Written out, a default would not follow `connections`.
    const auto line = [&](const char* key, bool given, std::uint32_t value) {
        out.line("  {}{}: {}", given ? "" : "# ", key, value);
    };
    line("connections_per_peer", limits.connections_per_peer.has_value(), limits.max_per_peer());
    line("connections_reserved", limits.connections_reserved.has_value(), limits.reserved());
    line("handshakes", limits.handshakes.has_value(), limits.max_handshakes());
}

}  // namespace

std::string to_yaml(const Options& options) {
    Writer out;
    write_listeners(out, options);
    write_devices(out, options);
    write_exports(out, options);
    out.line("pipeline:");
    if (options.pipeline.chunk_size) {
        out.line("  chunk_size: {}", bytes(*options.pipeline.chunk_size));
    } else {
        out.line("  # chunk_size: calibrated at start");
    }
    out.line("  slots: {}", options.pipeline.slots);
    out.line("  pinned: {}", bytes(options.pipeline.pinned));
    out.line("threads: {}{}", options.threads, options.threads == 0 ? "  # one per core" : "");
    out.line("limits:");
    out.line("  connections: {}", options.limits.connections);
    write_connection_shares(out, options.limits);
    out.line("  handshake: {}s", options.limits.handshake.count());
    out.line("  idle: {}s{}", options.limits.idle.count(),
             options.limits.idle.count() == 0 ? "  # no limit" : "");
    out.line("  drain: {}s", options.limits.drain.count());
    out.line("  in_flight_per_connection: {}", bytes(options.limits.in_flight_per_connection));
    out.line("  in_flight: {}", bytes(options.limits.in_flight));
    out.line("log:");
    out.line("  level: {}", options.log.level);
    out.line("  format: {}", rules::text_of(options.log.format));
    out.line("trace: {}", options.trace);
    return out.take();
}

}  // namespace gpunbd::config
