#include "config/yaml_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <map>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "config/unreadable.hpp"
#include "config/yaml_reader.hpp"
#include "config/yaml_tree.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t max_file_size = 1 * MiB;

// Rules with their ranges, as read_value() takes them.
auto integer_in(rules::IntegerRange range) {
    return [range](std::string_view text) { return rules::integer(text, range); };
}
auto bytes_in(rules::ByteRange range) {
    return [range](std::string_view text) { return rules::bytes(text, range); };
}
auto seconds_in(rules::IntegerRange range) {
    return [range](std::string_view text) { return rules::seconds(text, range); };
}

// What must differ among its kind, and the line where each was first seen.
class Unique {
 public:
    explicit Unique(Report& report) : report_(&report) {}
    void check(const std::string& identity, Place place, const std::string& key,
               const std::string& shown) {
        const auto [first, added] = lines_.emplace(identity, place.line);
        if (added) return;
        report_->add(place, key,
                     fmt::format("{} is already in line {}; give each once", shown, first->second));
    }

 private:
    Report* report_;
    std::map<std::string, int> lines_;
};

void read_tcp(Report& report, const YamlValue& list, std::vector<TcpListener>& out) {
    Unique unique(report);
    for (const YamlValue& item : read_list(report, list, rules::max_listeners)) {
        const YamlMap map(report, item, {"address", "port"});
        TcpListener listener;
        const auto address = map.read("address", Scalar::any, listener.address, rules::address);
        map.require("address", address, "127.0.0.1");
        const auto port = map.read("port", Scalar::plain, listener.port, rules::port);
        if (address == Outcome::good && port != Outcome::bad) {
            unique.check(rules::tcp_identity(listener), item.place(), item.path,
                         fmt::format("{} port {}", listener.address, listener.port));
        }
        out.push_back(std::move(listener));
    }
}

void read_unix(Report& report, const YamlValue& list, std::vector<UnixListener>& out) {
    Unique unique(report);
    for (const YamlValue& item : read_list(report, list, rules::max_listeners)) {
        const YamlMap map(report, item, {"path", "mode", "owner"});
        UnixListener listener;
        const auto path = map.read("path", Scalar::any, listener.path, rules::unix_path);
        map.require("path", path, "/run/gpunbd.sock");
        map.read("mode", Scalar::any, listener.mode, rules::file_mode);
        map.read("owner", Scalar::any, listener.owner, rules::owner);
        if (path == Outcome::good) {
            unique.check(listener.path, map.find("path")->place(), map.path_of("path"),
                         in_quotes(listener.path));
        }
        out.push_back(std::move(listener));
    }
}

void read_listeners(Report& report, const YamlValue& value, Options& options) {
    const YamlMap map(report, value, {"tcp", "unix"});
    if (const auto tcp = map.find("tcp")) read_tcp(report, *tcp, options.tcp);
    if (const auto unix_list = map.find("unix")) {
        read_unix(report, *unix_list, options.unix_sockets);
    }
}

void read_devices(Report& report, const YamlValue& list, std::vector<DeviceOptions>& out) {
    Unique unique(report);
    for (const YamlValue& item : read_list(report, list, rules::max_devices)) {
        const YamlMap map(report, item,
                          {"id", "reserve", "capacity", "mapped", "persistent_kernel"});
        DeviceOptions device;
        const auto id = map.read("id", Scalar::any, device.id, rules::device_id);
        map.require("id", id, "cuda:0");
        map.read("reserve", Scalar::any, device.reserve, bytes_in(rules::reserve));
        map.read("capacity", Scalar::any, device.capacity, bytes_in(rules::capacity));
        map.read("mapped", Scalar::any, device.mapped, bytes_in(rules::mapped));
        map.read("persistent_kernel", Scalar::plain, device.persistent_kernel, rules::boolean);
        for (const std::string_view key : {"mapped", "persistent_kernel"}) {
            const auto value = map.find(key);
            if (device.id != "host" || !value) continue;
            report.add(value->place(), map.path_of(key),
                       "is for GPUs, whose memory the CPU cannot address as it is; leave it out");
        }
        if (id == Outcome::good) {
            unique.check(device.id, map.find("id")->place(), map.path_of("id"),
                         in_quotes(device.id));
        }
        out.push_back(std::move(device));
    }
}

void read_export_devices(Report& report, const YamlValue& list, std::vector<std::string>& out) {
    Unique unique(report);
    for (const YamlValue& item : read_list(report, list, rules::max_devices)) {
        std::string id;
        if (read_value<std::string>(report, item, Scalar::any, id, rules::device_id) !=
            Outcome::good) {
            continue;
        }
        unique.check(id, item.place(), item.path, in_quotes(id));
        out.push_back(std::move(id));
    }
}

ExportOptions read_export(Report& report, const YamlMap& map) {
    ExportOptions out;
    map.read("name", Scalar::any, out.name, rules::export_name);
    map.read("description", Scalar::any, out.description, rules::description);
    map.read("size", Scalar::any, out.size, rules::export_size);
    if (const auto devices = map.find("devices")) {
        read_export_devices(report, *devices, out.devices);
    }
    const auto layout = map.read("layout", Scalar::any, out.layout, rules::layout);
    const auto stripe =
        map.read("stripe_size", Scalar::any, out.stripe_size, bytes_in(rules::stripe_size));
    map.read("provision", Scalar::any, out.provision, rules::provision);
    const auto page = map.read("page_size", Scalar::any, out.page_size, bytes_in(rules::page_size));
    map.read("read_only", Scalar::plain, out.read_only, rules::boolean);
    if (stripe == Outcome::good && layout != Outcome::bad && page != Outcome::bad) {
        if (auto misfit = rules::stripe_misfit(out, "layout:", "page_size")) {
            report.add(map.find("stripe_size")->place(), map.path_of("stripe_size"),
                       std::move(*misfit));
        }
    }
    return out;
}

void read_exports(Report& report, const YamlValue& list, std::vector<ExportOptions>& out) {
    const std::size_t before = out.size();
    Unique unique(report);
    for (const YamlValue& item : read_list(report, list, rules::max_exports)) {
        if (report.full()) return;
        const YamlMap map(report, item,
                          {"name", "description", "size", "devices", "layout", "stripe_size",
                           "provision", "page_size", "read_only"});
        out.push_back(read_export(report, map));
        if (item.node->kind != YamlNode::Kind::map) continue;
        const auto name = map.find("name");
        if (!name) {
            unique.check("", item.place(), map.path_of("name"), "the name '' (none given)");
        } else if (name->node->kind == YamlNode::Kind::scalar) {
            unique.check(name->node->text, name->place(), name->path,
                         "the name " + in_quotes(name->node->text));
        }
    }
    if (out.size() == before && list.node->kind == YamlNode::Kind::sequence &&
        list.node->items.empty()) {
        report.add(list.place(), list.path, "is empty; give at least one export");
    }
}

void read_pipeline(Report& report, const YamlValue& value, PipelineOptions& out) {
    const YamlMap map(report, value, {"chunk_size", "slots", "pinned"});
    const auto chunk =
        map.read("chunk_size", Scalar::any, out.chunk_size, bytes_in(rules::chunk_size));
    const auto slots = map.read("slots", Scalar::plain, out.slots, integer_in(rules::slots));
    const auto pinned = map.read("pinned", Scalar::any, out.pinned, bytes_in(rules::pinned));
    if (chunk == Outcome::bad || slots == Outcome::bad) return;
    const std::uint64_t min = rules::min_pinned(out);
    if (pinned == Outcome::absent && min > out.pinned) out.pinned = min;
    if (pinned == Outcome::good && min > out.pinned) {
        report.add(
            map.find("pinned")->place(), map.path_of("pinned"),
            fmt::format("{} is less than two transfers need, with {} chunks of {} each; use "
                        "at least {}",
                        format_size({.bytes = out.pinned}), out.slots,
                        format_size({.bytes = *out.chunk_size}), format_size({.bytes = min})));
    }
}

void read_limits(Report& report, const YamlValue& value, Limits& out) {
    const YamlMap map(report, value,
                      {"connections", "connections_per_peer", "connections_reserved", "handshakes",
                       "handshake", "idle", "drain", "in_flight_per_connection", "in_flight"});
    const auto connections =
        map.read("connections", Scalar::plain, out.connections, integer_in(rules::connections));
    const auto per_peer = map.read("connections_per_peer", Scalar::plain, out.connections_per_peer,
                                   integer_in(rules::connections));
    const auto reserved = map.read("connections_reserved", Scalar::plain, out.connections_reserved,
                                   integer_in(rules::connections_reserved));
    if (connections != Outcome::bad && per_peer == Outcome::good &&
        *out.connections_per_peer > out.connections) {
        report.add(map.find("connections_per_peer")->place(), map.path_of("connections_per_peer"),
                   fmt::format("{} is more than connections ({}); use at most that",
                               *out.connections_per_peer, out.connections));
    }
    if (connections != Outcome::bad && reserved == Outcome::good &&
        *out.connections_reserved >= out.connections) {
        report.add(map.find("connections_reserved")->place(), map.path_of("connections_reserved"),
                   fmt::format("{} leaves none of the {} connections; use less",
                               *out.connections_reserved, out.connections));
    }
    map.read("handshakes", Scalar::plain, out.handshakes, integer_in(rules::connections));
    map.read("handshake", Scalar::any, out.handshake, seconds_in(rules::handshake));
    map.read("idle", Scalar::any, out.idle, seconds_in(rules::idle));
    map.read("drain", Scalar::any, out.drain, seconds_in(rules::drain));
    const auto each = map.read("in_flight_per_connection", Scalar::any,
                               out.in_flight_per_connection, bytes_in(rules::in_flight));
    const auto all = map.read("in_flight", Scalar::any, out.in_flight, bytes_in(rules::in_flight));
    if (each == Outcome::bad || all == Outcome::bad) return;
    if (out.in_flight_per_connection <= out.in_flight) return;
    const std::string_view key = all == Outcome::good ? "in_flight" : "in_flight_per_connection";
    report.add(map.find(key)->place(), map.path_of(key),
               fmt::format("in_flight ({}) is less than in_flight_per_connection ({}); let all "
                           "connections have at least what one may have",
                           format_size({.bytes = out.in_flight}),
                           format_size({.bytes = out.in_flight_per_connection})));
}

void read_log(Report& report, const YamlValue& value, LogOptions& out) {
    const YamlMap map(report, value, {"level", "format"});
    map.read("level", Scalar::any, out.level, rules::log_level);
    map.read("format", Scalar::any, out.format, rules::log_format);
}

Options read_root(Report& report, const YamlNode& root) {
    Options options;
    const YamlMap map(
        report, {&root, ""},
        {"listeners", "devices", "exports", "pipeline", "threads", "limits", "log", "trace"});
    if (const auto listeners = map.find("listeners")) {
        read_listeners(report, *listeners, options);
    } else {
        options.tcp = default_listeners(TcpListener{}.port);
    }
    if (const auto devices = map.find("devices")) read_devices(report, *devices, options.devices);
    const auto exports = map.find("exports");
    if (exports) read_exports(report, *exports, options.exports);
    map.require("exports", exports ? Outcome::good : Outcome::absent,
                "exports: [{name: vram, size: 8G}]");
    if (const auto pipeline = map.find("pipeline"))
        read_pipeline(report, *pipeline, options.pipeline);
    map.read("threads", Scalar::plain, options.threads, integer_in(rules::threads));
    if (const auto limits = map.find("limits")) read_limits(report, *limits, options.limits);
    if (const auto log = map.find("log")) read_log(report, *log, options.log);
    map.read("trace", Scalar::plain, options.trace, rules::boolean);
    return options;
}

Loaded load_checked(const std::string& text, const std::string& name) {
    if (text.size() > max_file_size) {
        return {
            {},
            {{name, 0, 0, "",
              "is larger than 1 MiB, which no configuration needs; is it another kind of file?"}}};
    }
    const auto parsed = parse_yaml(text, name);
    if (const auto* problem = std::get_if<Problem>(&parsed)) return {{}, {*problem}};
    const auto& tree = std::get<YamlTree>(parsed);

    Report report(name);
    Options options;
    if (tree.root == nullptr || tree.root->kind == YamlNode::Kind::null) {
        report.add({1, 1}, "exports",
                   "is missing, the file is empty; write for example exports: "
                   "[{name: vram, size: 8G}]");
    } else {
        options = read_root(report, *tree.root);
    }
    if (report.empty()) return {std::move(options), {}};
    return {{}, report.take()};
}

class File {
 public:
    explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (fd_ >= 0) close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int fd() const { return fd_; }

 private:
    int fd_;
};

}  // namespace

Loaded load_text(const std::string& text, const std::string& name) {
    try {
        return load_checked(text, name);
    } catch (const std::exception& error) {
        return {{}, {{name, 0, 0, "", fmt::format("cannot be checked: {}", error.what())}}};
    }
}

Loaded load_file(const std::string& path) {
    const auto refuse = [&path](int error) -> Loaded {
        return {{},
                {{path, 0, 0, "", fmt::format("cannot be read: {}", why_unreadable(path, error))}}};
    };
    const File file(path);
    if (file.fd() < 0) return refuse(errno);
    // One byte past the limit is enough for load_text() to refuse it: /dev/zero has no end.
    std::string text(max_file_size + 1, '\0');
    std::size_t length = 0;
    while (length < text.size()) {
        const ssize_t got = read(file.fd(), text.data() + length, text.size() - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse(errno);
        if (got == 0) break;
        length += static_cast<std::size_t>(got);
    }
    text.resize(length);
    return load_text(text, path);
}

}  // namespace gpunbd::config
