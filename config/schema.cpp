#include "config/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <stdexcept>

#include "config/schema_reader.hpp"
#include "config/schema_visitors.hpp"
#include "config/value_kinds.hpp"
#include "config/yaml_file.hpp"

namespace gpunbd::config {

// --- the table -----------------------------------------------------------------------------------

template <class T, class Object>
concept Of = std::same_as<std::remove_cv_t<T>, Object>;

template <class V>
void visit(V& v, Of<TcpListener> auto& tcp) {
    v.value("address", tcp.address, text(rules::address), {.example = "127.0.0.1"});
    v.value("port", tcp.port, port());
    if constexpr (V::reads) {
        if (!v.good("address") || v.bad("port")) return;
        v.identity = {rules::tcp_identity(tcp), v.map().value(),
                      fmt::format("{} port {}", tcp.address, tcp.port)};
    }
}

template <class V>
void visit(V& v, Of<UnixListener> auto& socket) {
    v.value("path", socket.path, text(rules::unix_path), {.example = "/run/gpunbd.sock"});
    v.value("mode", socket.mode, file_mode());
    v.value("owner", socket.owner, text(rules::owner), {.words = "as created"});
    if constexpr (V::reads) v.identify("path", socket.path, in_quotes(socket.path));
}

template <class V>
void visit(V& v, Of<VsockListener> auto& vsock) {
    v.value("cid", vsock.cid, vsock_cid());
    v.value("port", vsock.port, integer(1, any_cid - 1));
    if constexpr (V::reads) {
        if (v.bad("cid") || v.bad("port")) return;
        v.identity = {fmt::format("{}:{}", vsock.cid, vsock.port), v.map().value(),
                      fmt::format("cid {} port {}", vsock_cid().text(vsock.cid), vsock.port)};
    }
}

template <class AnyOptions>
struct Listeners {
    AnyOptions& options;
};
template <class V, class AnyOptions>
void visit(V& v, const Listeners<AnyOptions>& listeners) {
    v.list("tcp", listeners.options.tcp, Count{rules::max_listeners}, Without{.words = "none"});
    v.list("unix", listeners.options.unix_sockets, Count{rules::max_listeners},
           Without{.words = "none"});
    v.list("vsock", listeners.options.vsock, Count{rules::max_listeners}, Without{.words = "none"});
}

template <class V>
void visit(V& v, Of<TlsOptions> auto& tls) {
    v.value("mode", tls.mode,
            one_of<TlsMode>({{"off", TlsMode::off},
                             {"optional", TlsMode::optional},
                             {"required", TlsMode::required}}),
            {.words = "required where certificates or psk are given, else off"});
    v.value("certificates", tls.certificates, path(), {.words = "none"});
    v.value("psk", tls.psk, path(), {.words = "none"});
    if (V::writes && tls.certificates.empty()) return;
    v.value("verify_clients", tls.verify_clients, boolean());
    if constexpr (V::reads) {
        if (v.bad("certificates") || v.bad("psk") || v.bad("mode")) return;
        const bool off = tls.mode == TlsMode::off;
        if (v.good("mode") && !off && !tls.has_credentials()) {
            v.add("mode",
                  "TLS needs certificates or shared keys; add for example certificates: "
                  "/etc/gpunbd/tls, or psk: /etc/gpunbd/keys.psk");
        }
        if (v.good("verify_clients") && tls.certificates.empty()) {
            v.add("verify_clients",
                  "is about certificates, of which there are none; add "
                  "certificates, or leave it out");
        }
        if (!v.good("mode") && tls.has_credentials()) tls.mode = TlsMode::required;
    }
}

template <class V>
void visit(V& v, Of<DeviceOptions> auto& device) {
    constexpr std::uint64_t max = rules::max_export_size;
    v.value("id", device.id, device_id(), {.example = "cuda:0"});
    v.value("reserve", device.reserve, bytes({0, max}), {.words = "the device's own"});
    v.value("capacity", device.capacity, bytes({64 * KiB, max}), {.words = "what there is"});
    if (!V::writes || rules::is_gpu(device.id)) {
        v.value("mapped", device.mapped, bytes({0, max}), {.words = "what can be mapped"});
        v.value("gpu_use", device.gpu_use,
                one_of<GpuUse>({{"auto", GpuUse::automatic},
                                {"copy-engines", GpuUse::copy_engines},
                                {"all", GpuUse::all}}));
    }
    if (!V::writes || rules::is_bar(device.id)) v.value("force", device.force, boolean());
    if constexpr (V::reads) {
        const auto refuse = [&](std::string_view key, const char* why) {
            if (v.map().find(key)) v.add(key, why);
        };
        if (v.good("id") && !rules::is_gpu(device.id)) {
            for (const std::string_view key : {"mapped", "gpu_use"}) {
                refuse(key,
                       "is for GPUs, whose memory the CPU cannot address as it is; leave it out");
            }
        }
        if (v.good("id") && !rules::is_bar(device.id)) {
            refuse("force",
                   "is for memory of PCI cards (pci:), which others may use; leave it out");
        }
        v.identify("id", device.id, in_quotes(device.id));
    }
}

template <class V>
void visit(V& v, Of<BlockSizes> auto& blocks) {
    v.value("minimum", blocks.minimum, bytes({1, 64 * KiB, true}));
    v.value("preferred", blocks.preferred, bytes({512, rules::max_request_size, true}),
            {.words = "4K, or minimum where that is more"});
    v.value("maximum", blocks.maximum, bytes({MiB, rules::max_request_size}));
    if constexpr (V::reads) {
        if (v.bad("minimum") || v.bad("preferred") || v.bad("maximum")) return;
        if (v.good("preferred") && *blocks.preferred < blocks.minimum) {
            v.add("preferred",
                  fmt::format("{} is less than minimum ({}); use at least that",
                              size_text(*blocks.preferred), size_text(blocks.minimum)));
        }
        if (blocks.best() > blocks.maximum) {
            v.add(v.good("preferred") ? "preferred" : "maximum",
                  fmt::format("preferred ({}) is more than maximum ({}); use at most that",
                              size_text(blocks.best()), size_text(blocks.maximum)));
        }
        if (blocks.maximum % blocks.minimum != 0) {
            v.add("maximum",
                  fmt::format("{} is not a multiple of minimum ({}); use for example {}",
                              size_text(blocks.maximum), size_text(blocks.minimum),
                              size_text(blocks.maximum / blocks.minimum * blocks.minimum)));
        }
    }
}

template <class V>
void visit(V& v, Of<AccessRule> auto& rule) {
    const auto condition = [&](std::string_view name, auto& member, const auto& kind) {
        if (!V::writes || member) v.value(name, member, kind, Without{.words = "whichever it is"});
    };
    condition("network", rule.network, network());
    condition("uid", rule.uid, account(rules::user));
    condition("gid", rule.gid, account(rules::group));
    condition("tls_name", rule.tls_name, text(rules::tls_name));
    condition("psk_user", rule.psk_user, text(rules::psk_user));
    condition("cid", rule.cid, integer(0, 4'294'967'295));
    v.value("mode", rule.mode,
            one_of<AccessMode>(
                {{"read-write", AccessMode::read_write}, {"read-only", AccessMode::read_only}}));
    if constexpr (V::reads) {
        rule.line = {v.map().value().place().line};
        const auto given = [&](std::string_view key) { return v.map().find(key).has_value(); };
        // Each is of clients of one kind, and nobody is of two.
        std::string_view first;
        for (const std::string_view key : {"network", "uid", "gid", "cid"}) {
            if (!given(key)) continue;
            if (first.empty() || (first == "uid" && key == "gid")) {
                first = key;
                continue;
            }
            v.add(key, fmt::format("no client has this and also {}: network is for TCP, uid and "
                                   "gid are for Unix sockets, cid is for vsock; write a rule for "
                                   "each",
                                   first));
            break;
        }
        if (given("tls_name") && given("psk_user")) {
            v.add("psk_user",
                  "no client has this and also tls_name: it shows a certificate or uses a shared "
                  "key; write a rule for each");
        }
        if (first.empty() && !given("tls_name") && !given("psk_user")) {
            v.map().require("network",
                            "network: 10.0.0.0/8, uid: 1000, gid: disk, tls_name: "
                            "client.example.com, psk_user: alice, or cid: 3");
        }
    }
}

template <class V>
void visit(V& v, Of<Rates> auto& rates) {
    const Without none{.words = "as fast as it goes"};
    v.value("bytes_per_second", rates.bytes_per_second, bytes({64 * KiB, 1024 * GiB}), none);
    v.value("iops", rates.iops, integer(1, 1'000'000'000), none);
    v.value("burst", rates.burst, seconds(0, 3600));
    if constexpr (V::reads) {
        if (v.map().find("bytes_per_second") || v.map().find("iops")) return;
        v.map().require("bytes_per_second", "bytes_per_second: 100M, or iops: 1000");
    }
}

template <class V>
void visit(V& v, Of<ExportOptions> auto& exported) {
    v.value("name", exported.name, text(rules::export_name),
            {.words = "the empty name, which is NBD's default export"});
    v.value("description", exported.description, text(rules::description), {.words = "empty"});
    v.value("size", exported.size, export_size(),
            {.words = "100%, or 1G of the host where no GPU can be used"});
    v.list("devices", exported.devices, Count{rules::max_devices},
           Without{.words = "the first GPU and, without one, the host"}, device_id());
    v.value("layout", exported.layout,
            one_of<LayoutKind>({{"linear", LayoutKind::linear}, {"stripe", LayoutKind::stripe}}));
    v.value("stripe_size", exported.stripe_size, with_text(bytes({64 * KiB, 1024 * GiB}), 0, ""),
            {.words = "one page"});
    v.value("provision", exported.provision,
            one_of<Provision>({{"thin", Provision::thin}, {"full", Provision::full}}),
            {.words = "thin, or full where swap is true"});
    v.value("page_size", exported.page_size, bytes({64 * KiB, 64 * MiB, true}));
    v.value("read_only", exported.read_only, boolean());
    v.value("keep", exported.keep, boolean());
    v.value("swap", exported.swap, boolean());
    v.section("block_size", exported.block_size);
    v.value("tls", exported.tls_required, one_of<bool>({{"optional", false}, {"required", true}}));
    v.list("access", exported.access,
           Count{rules::max_access_rules, 1, "give a rule, or leave it out: then everybody may"},
           Without{.words = "everybody may"});
    const Without no_limit{.words = "as many as limits.connections lets in"};
    v.value("max_connections", exported.max_connections, integer(1, 1'000'000), no_limit);
    v.value("max_connections_per_peer", exported.max_connections_per_peer, integer(1, 1'000'000),
            Without{.words = "as many as limits.connections_per_peer lets in"});
    const auto rates = [&](std::string_view name, auto& member) {
        if constexpr (V::writes) {
            if (!member.any()) return v.comment(name, "no limit");
        }
        v.section(name, member);
    };
    rates("rates", exported.rates);
    rates("rates_per_peer", exported.rates_per_peer);
    if constexpr (V::reads) {
        if (const auto misfit = rules::size_misfit(exported, "block_size.minimum");
            misfit && v.good("size")) {
            v.add("size", *misfit);
        }
        if (v.good("stripe_size") && !v.bad("layout") && !v.bad("page_size")) {
            const auto misfit = rules::stripe_misfit(exported, "layout:", "page_size");
            if (misfit) v.add("stripe_size", *misfit);
        }
        if (exported.swap && !v.map().find("provision")) exported.provision = Provision::full;
        v.identify("name", exported.name, "the name " + in_quotes(exported.name));
        if (v.map().find("name")) return;
        YamlValue nameless = v.map().value();
        nameless.path = v.map().path_of("name");
        v.identity = {"", nameless, "the name '' (none given)"};
    }
}

template <class V>
void visit(V& v, Of<PipelineOptions> auto& pipeline) {
    v.value("chunk_size", pipeline.chunk_size, bytes({64 * KiB, 16 * MiB, true}),
            {.words = "calibrated at start"});
    v.value("slots", pipeline.slots, integer(1, 8));
    v.value("pinned", pipeline.pinned, bytes({MiB, GiB, true}));
    if constexpr (V::reads) {
        const std::uint64_t min = rules::min_pinned(pipeline);
        if (v.bad("chunk_size") || v.bad("slots") || min <= pipeline.pinned) return;
        if (!v.good("pinned")) {
            pipeline.pinned = min;
            return;
        }
        v.add("pinned",
              fmt::format("{} is less than two transfers need, with {} chunks of {} each; use at "
                          "least {}",
                          size_text(pipeline.pinned), pipeline.slots,
                          size_text(*pipeline.chunk_size), size_text(min)));
    }
}

template <class V>
void visit(V& v, Of<Limits> auto& limits) {
    const auto in_flight = bytes({rules::max_request_size, 1024 * GiB});
    v.value("connections", limits.connections, integer(1, 1'000'000));
    // Written out, a default would not follow `connections`.
    v.value("connections_per_peer", limits.connections_per_peer, integer(1, 1'000'000),
            {.words = "half of connections"});
    v.value("connections_reserved", limits.connections_reserved, integer(0, 999'999),
            {.words = "a sixteenth of connections"});
    v.value("handshakes", limits.handshakes, integer(1, 1'000'000),
            {.words = "a sixteenth of connections, at least 16"});
    v.value("handshake", limits.handshake, seconds(1, 3600));
    v.value("idle", limits.idle, seconds(0, 604'800));
    v.value("unreachable", limits.unreachable, seconds(0, 28'800));
    v.value("drain", limits.drain, seconds(0, 3600));
    v.value("in_flight_per_connection", limits.in_flight_per_connection, in_flight);
    v.value("in_flight", limits.in_flight, in_flight);
    if constexpr (V::reads) {
        if (v.good("connections_per_peer") && !v.bad("connections") &&
            *limits.connections_per_peer > limits.connections) {
            v.add("connections_per_peer",
                  fmt::format("{} is more than connections ({}); use at most that",
                              *limits.connections_per_peer, limits.connections));
        }
        if (v.good("connections_reserved") && !v.bad("connections") &&
            *limits.connections_reserved >= limits.connections) {
            v.add("connections_reserved",
                  fmt::format("{} leaves none of the {} connections; use less",
                              *limits.connections_reserved, limits.connections));
        }
        if (v.bad("in_flight_per_connection") || v.bad("in_flight")) return;
        if (limits.in_flight_per_connection <= limits.in_flight) return;
        v.add(v.good("in_flight") ? "in_flight" : "in_flight_per_connection",
              fmt::format("in_flight ({}) is less than in_flight_per_connection ({}); let all "
                          "connections have at least what one may have",
                          size_text(limits.in_flight), size_text(limits.in_flight_per_connection)));
    }
}

template <class V>
void visit(V& v, Of<KeepingOptions> auto& keeping) {
    v.value("grace", keeping.grace, seconds(0, 604'800));
    v.value("socket", keeping.socket, text(rules::unix_path),
            {.words = "keeping.sock in the service's folder, /run/gpunbd or the user's"});
}

template <class V>
void visit(V& v, Of<AdminTcp> auto& tcp) {
    v.value("address", tcp.address, text(rules::address), {.words = "none"});
    v.value("port", tcp.port, port());
    v.value("token", tcp.token, path(), {.words = "none"});
    v.value("tls", tcp.tls, boolean());
    if constexpr (V::reads) {
        if (v.good("port") && !v.map().find("address")) {
            v.add("port", "there is no address that it is of; add for example address: 127.0.0.1");
        }
    }
}

template <class V>
void visit(V& v, Of<AdminOptions> auto& admin) {
    v.value("socket", admin.socket, text(rules::admin_socket),
            {.words = "admin-PID.sock in the service's folder, /run/gpunbd or the user's"});
    const bool off = !admin.tcp.address;
    if constexpr (V::writes) {
        if (off) v.comment("tcp", "none");
    }
    if (!V::writes || !off) v.section("tcp", admin.tcp);
    v.list("hosts", admin.hosts, Count{rules::max_listeners}, Without{.words = "none"},
           text(rules::host_name));
}

template <class V>
void visit(V& v, Of<LogOptions> auto& log) {
    v.value("level", log.level,
            one_of<std::string>({{"trace", "trace"},
                                 {"debug", "debug"},
                                 {"info", "info"},
                                 {"warn", "warn"},
                                 {"error", "error"}}));
    v.value("format", log.format,
            one_of<LogFormat>({{"text", LogFormat::text}, {"json", LogFormat::json}}));
}

template <class V>
void visit(V& v, Of<Options> auto& options) {
    // Written out, a default would be a demand.
    const std::uint16_t port = TcpListener{}.port;
    const bool by_default = options.tcp == default_listeners(port) &&
                            options.unix_sockets.empty() && options.vsock.empty();
    if constexpr (V::reads) {
        if (v.map().find("listeners")) options.tcp.clear();
    }
    if constexpr (V::writes) {
        if (by_default) {
            v.comment("listeners",
                      fmt::format("port {} of 127.0.0.1 and, where there is IPv6, ::1", port));
        }
    }
    if (!V::writes || !by_default)
        v.section("listeners", Listeners<std::remove_reference_t<decltype(options)>>{options});
    v.section("tls", options.tls);
    v.value("insecure", options.insecure, boolean());
    v.list("devices", options.devices, Count{rules::max_devices},
           Without{.words = "none, each has its own defaults"});
    v.list("exports", options.exports, Count{rules::max_exports, 1, "give at least one export"},
           Without{.example = "exports: [{name: vram, size: 8G}]"});
    v.section("pipeline", options.pipeline);
    v.value("threads", options.threads, with_text(integer(0, 1024), 0, "0  # one per core"),
            {.words = "0, one per core"});
    v.section("limits", options.limits);
    v.section("keeping", options.keeping);
    v.section("admin", options.admin);
    v.section("log", options.log);
    v.value("trace", options.trace, boolean());
    if constexpr (V::reads) {
        if (const auto misfit = rules::swap_misfit(options)) {
            v.add(misfit->section, misfit->what);
        }
        if (const auto misfit = rules::admin_misfit(options)) {
            v.add(misfit->section, misfit->what);
        }
    }
}

// --- what goes through it ------------------------------------------------------------------------

const std::vector<KeyText>& all_keys() {
    static const std::vector<KeyText> all = [] {
        std::vector<KeyText> out;
        Teller teller{{}, "", out};
        teller.below("", Options{});
        return out;
    }();
    return all;
}

const KeyText& key_text(std::string_view path) {
    const auto found = std::find_if(all_keys().begin(), all_keys().end(),
                                    [path](const KeyText& key) { return key.path == path; });
    if (found == all_keys().end()) throw std::logic_error(fmt::format("no key {}", path));
    return *found;
}

Options read_options(Report& report, const YamlNode& root) {
    Options out;
    out.tcp = default_listeners(TcpListener{}.port);
    Reader::read(report, {&root, ""}, out);
    return out;
}

std::optional<std::string> set_key(std::string_view path, std::string_view text, Options& options) {
    Setter setter{{}, path, text};
    visit(setter, options);
    if (!setter.found) throw std::logic_error(fmt::format("no key {}", path));
    return setter.wrong;
}

std::string to_yaml(const Options& options) {
    return fmt::format("{}\n", fmt::join(Writer::lines_of(options), "\n"));
}

}  // namespace gpunbd::config
