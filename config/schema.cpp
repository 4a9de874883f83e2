#include "config/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <stdexcept>

#include "config/devices/device_drivers.hpp"
#include "config/schema_reader.hpp"
#include "config/schema_visitors.hpp"
#include "config/spill_keys.hpp"
#include "config/value_kinds.hpp"
#include "config/yaml_file.hpp"

namespace gpunbd::config {

// --- the table -----------------------------------------------------------------------------------

template <class T, class Object>
concept Of = std::same_as<std::remove_cv_t<T>, Object>;

template <class V>
void visit(V& v, Of<TcpListener> auto& tcp) {
    v.value("address", tcp.address, text(rules::address),
            {.example = "127.0.0.1", .about = R"(: a numeric IPv4 or IPv6 address.
0.0.0.0 means all IPv4 addresses,
.Ql \(dq::\(dq
all IPv6 addresses; list both to listen on all.
A link-local address needs its interface:
.Ql \(dqfe80::1%eth0\(dq .)"});
    v.value("port", tcp.port, port());
    if constexpr (V::reads) {
        if (!v.good("address") || v.bad("port")) return;
        v.identity = {rules::tcp_identity(tcp), v.map().value(),
                      fmt::format("{} port {}", tcp.address, tcp.port)};
    }
}

template <class V>
void visit(V& v, Of<UnixListener> auto& socket) {
    v.value("path", socket.path, text(rules::unix_path),
            {.example = "/run/gpunbd.sock",
             .about = R"(: the path of the socket, at most 107 bytes.)"});
    v.value("mode", socket.mode, file_mode(),
            {.about = R"(: the permissions of the socket, always read as octal.)"});
    v.value("owner", socket.owner, text(rules::owner),
            {.words = "as created",
             .about = R"(: the owner of the socket, user or user:group, by name or number.
An empty text leaves the owner unchanged.)"});
    if constexpr (V::reads) v.identify("path", socket.path, in_quotes(socket.path));
}

template <class V>
void visit(V& v, Of<VsockListener> auto& vsock) {
    v.value("cid", vsock.cid, vsock_cid(),
            {.about = R"(: the context id of this machine, which is 2 on a host.
1 accepts clients on the same machine, if the kernel has vsock_loopback.)"});
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
    v.list("tcp", listeners.options.tcp, Count{rules::max_listeners},
           KeyInfo{.words = "none", .about = R"( TCP listeners.)"});
    v.list("unix", listeners.options.unix_sockets, Count{rules::max_listeners},
           KeyInfo{.words = "none", .about = R"( Unix sockets.)"});
    v.list("vsock", listeners.options.vsock, Count{rules::max_listeners},
           KeyInfo{.words = "none",
                   .about =
                       R"( vsock listeners, for connections between virtual machines and their host.
The hypervisor decides which machines can connect; file modes and firewalls do not apply.)"});
}

template <class V>
void visit(V& v, Of<TlsOptions> auto& tls) {
    v.value("mode", tls.mode,
            one_of<TlsMode>({{"off", TlsMode::off},
                             {"optional", TlsMode::optional},
                             {"required", TlsMode::required}}),
            {.words = "required where certificates or psk are given, else off", .about = R"(.
.Ql off
disables TLS.
.Ql optional
lets clients choose; see
.Va exports[].tls .
.Ql required
accepts only STARTTLS until TLS is established.)"});
    v.value("certificates", tls.certificates, path(), {.words = "none", .about = R"(: a folder with
.Pa server-cert.pem ,
the certificate of the server and the intermediate certificates;
.Pa server-key.pem ,
its private key, not encrypted;
.Pa ca-cert.pem ,
the authority that signs the certificates of clients; and optionally
.Pa ca-crl.pem ,
its revocation list.)"});
    v.value("psk", tls.psk, path(),
            {.words = "none", .about = R"(: a file of shared keys, with a line
.Ar user : Ns Ar hexkey
for each user, where the key has 32 to 128 hexadecimal digits.
.Xr psktool 1
creates such files.)"});
    if (V::writes && tls.certificates.empty()) return;
    v.value("verify_clients", tls.verify_clients, boolean(),
            {.about = R"(: require clients that use certificates to present one that is signed by
.Pa ca-cert.pem .
If false, client certificates are not verified; if this opens an export without
.Va access
to every client, the server logs a warning at start and after the reload that caused it.
Needs
.Va certificates .)"});
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
                  "has no effect without certificates; add certificates, or "
                  "leave it out");
        }
        if (!v.good("mode") && tls.has_credentials()) tls.mode = TlsMode::required;
    }
}

template <class V>
void visit(V& v, Of<SpillOptions> auto& spill) {
    if constexpr (V::writes) {
        write_spill(v, spill);
    } else {
        list_spill_keys(v, spill);
    }
}

template <class V>
void visit(V& v, Of<DeviceOptions> auto& device) {
    constexpr std::uint64_t max = rules::max_export_size;
    v.value("id", device.id, device_id(), {.example = example_device(), .about = R"(.
.Ic gpunbd devices
lists the ids; see also
.Sx MEMORY OF PCI CARDS .
Each device may be listed once.)"});
    v.value("reserve", device.reserve, bytes({0, max}),
            {.words = "the device's own",
             .about = R"(: memory that the server leaves to other users of the device.
For host, it is subtracted from the available memory of the machine, and from the remaining memory of each
control group of the server (MemoryMax= and MemoryHigh= of a service, the limit of a container).
A write that would need the reserve fails with ENOSPC.
For a BAR, it is the end of the BAR, which is never accessed.)"});
    v.value("capacity", device.capacity, bytes({64 * KiB, max}),
            {.words = "the memory of the device",
             .about = R"(: the maximum of memory that the server uses.)"});
    // Omitted for other devices, because reading it back would be an error.
    const auto setting = [&](std::string_view key, auto& member, const auto& kind,
                             KeyInfo info = {}) {
        if (!V::writes || has_setting(device.id, key)) v.value(key, member, kind, info);
        if constexpr (V::reads) {
            if (!v.good("id") || has_setting(device.id, key) || !v.map().find(key)) return;
            v.add(key, fmt::format("is for {}; leave it out", purpose_of_setting(key)));
        }
    };
    setting(
        "mapped", device.mapped, bytes({0, max}),
        {.words = "as much as possible",
         .about =
             R"(, for GPUs only: the maximum of GPU memory that is mapped into the CPU's address space; 0 maps none.
Writes to mapped memory are received without a copy.
Lower it if other programs need a part of the PCIe window of the GPU.)"});
    setting("gpu_use", device.gpu_use,
            one_of<GpuUse>({{"auto", GpuUse::automatic},
                            {"copy-engines", GpuUse::copy_engines},
                            {"all", GpuUse::all}}),
            {.about = R"(, for GPUs only: the units that may copy.
Kernels are the fastest for small copies.
If another program computes on the same GPU, however, they wait for a time slice and take it from that program;
copy engines and the mapping do neither.
.Cm auto
uses kernels unless another program computes on the GPU,
.Cm copy-engines
never uses kernels, and
.Cm all
always does; see
.Sx SHARING A GPU .)"});
    setting(
        "revocable", device.revocable, bytes_or_all({0, max}),
        {.about =
             R"(, for NVIDIA GPUs only: how much of the exports' memory other programs can take at any time.
If an allocation of another program would fail, the driver moves as much of this memory to host memory as that program
needs, and clients use it there, more slowly, until GPU memory is free again.
The memory is not mapped.
The host must have room for all of it, and
.Va keep
and
.Va swap
of an export exclude it; see
.Sx SHARING A GPU .)"});
    setting(
        "force", device.force, boolean(),
        {.about =
             R"(, for BARs only: serve the BAR even if a driver uses the card or the card is a display.)"});
    v.value("keep_free", device.keep_free, bytes({0, max}),
            {.about = R"(: memory that other programs find free at any time.
When less is free, the pages that were used least are moved to the
.Va spill
memory while clients use them, and they return when more is free.
0 disables this; see
.Sx GIVING MEMORY BACK .)"});
    v.value(
        "reclaim_rate", device.reclaim_rate, bytes({64 * KiB, 1024 * GiB}),
        {.words = "no limit",
         .about =
             R"(: the maximum of memory per second that moves back to the device, so that clients keep its link.
Pages that leave are not limited, since other programs wait for the memory.)"});
    v.list(
        "spill", device.spill, Count{rules::max_spills},
        KeyInfo{.words = "none",
                .about =
                    R"( places for pages that leave the device, in the order in which they are used.
Each item is the id of a device with a size, such as
.Ql host: 64G ,
or a
.Va file
with its
.Va size .)"});
    if constexpr (V::reads) {
        v.identify("id", device.id, in_quotes(device.id));
        if (!v.good("id")) return;
        if (v.good("reclaim_rate") && !v.map().find("spill")) {
            v.add("reclaim_rate", "has no effect without spill; add it, or leave reclaim_rate out");
        }
        if (std::ranges::find(device.spill, device.id, &SpillOptions::device) !=
            device.spill.end()) {
            v.add("spill",
                  fmt::format("{} cannot take its own pages; name another device, or a file",
                              device.id));
        }
    }
}

template <class V>
void visit(V& v, Of<BlockSizes> auto& blocks) {
    v.value("minimum", blocks.minimum, bytes({1, 64 * KiB, true}),
            {.about = R"(: the unit of offsets and lengths.
The size of the export must be a multiple of it, and other requests are refused.
The server itself needs no alignment.)"});
    v.value("preferred", blocks.preferred, bytes({512, rules::max_request_size, true}),
            {.words = "4K, or minimum if that is more", .about = R"(, from
.Va minimum
to
.Va maximum :
the preferred unit of requests.)"});
    v.value("maximum", blocks.maximum, bytes({MiB, rules::max_request_size}),
            {.about = R"(, a multiple of
.Va minimum :
the maximum of data in one request.)"});
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
    const auto condition = [&](std::string_view name, auto& member, const auto& kind,
                               std::string_view about) {
        if (V::writes && !member) return;
        v.value(name, member, kind, KeyInfo{.words = "any", .about = about});
    };
    condition("network", rule.network, network(),
              R"(: the network of a TCP client, such as 10.0.0.0/8 or 2001:db8::/32, or one address.
The bits after the prefix must be zero.
IPv4 clients match IPv4 networks only, even if a dual-stack socket accepted them.
The zone of an IPv6 client is ignored.)");
    condition("uid", rule.uid, account(rules::user), R"(: the user of a client on a Unix socket.)");
    condition("gid", rule.gid, account(rules::group),
              R"(: the group of a client on a Unix socket, or one of its supplementary groups.)");
    condition(
        "tls_name", rule.tls_name, text(rules::tls_name),
        R"(: a name in the verified certificate of the client; the whole name, in any case.)");
    condition("psk_user", rule.psk_user, text(rules::psk_user),
              R"(: the user of the shared key that the client uses in TLS.)");
    condition("cid", rule.cid, integer(0, 4'294'967'295),
              R"(: the context id of a vsock client, that is, of a virtual machine.)");
    v.value("mode", rule.mode,
            one_of<AccessMode>(
                {{"read-write", AccessMode::read_write}, {"read-only", AccessMode::read_only}}),
            {.about = R"(: the permission of matching clients.)"});
    if constexpr (V::reads) {
        rule.line = {v.map().value().position().line};
        const auto given = [&](std::string_view key) { return v.map().find(key).has_value(); };
        // Each condition applies to one kind of client.
        std::string_view first;
        for (const std::string_view key : {"network", "uid", "gid", "cid"}) {
            if (!given(key)) continue;
            if (first.empty() || (first == "uid" && key == "gid")) {
                first = key;
                continue;
            }
            v.add(key, fmt::format("excludes {}: network is for TCP, uid and gid are for Unix "
                                   "sockets, cid is for vsock; write a rule for each",
                                   first));
            break;
        }
        if (given("tls_name") && given("psk_user")) {
            v.add(
                "psk_user",
                "excludes tls_name: a client presents a certificate or uses a shared key; write a "
                "rule for each");
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
    const auto none = [](std::string_view about) {
        return KeyInfo{.words = "no limit", .about = about};
    };
    v.value("bytes_per_second", rates.bytes_per_second, bytes({64 * KiB, 1024 * GiB}),
            none(R"(: the payload of READ and WRITE.
TRIM and WRITE_ZEROES have no payload.
This key or
.Va iops
must be given.)"));
    v.value("iops", rates.iops, integer(1, 1'000'000'000),
            none(R"(: requests per second of any type, including refused ones.)"));
    v.value(
        "burst", rates.burst, seconds(0, 3600),
        {.about =
             R"(: the burst after a pause, as the time in which the rate would allow it; 0 is a hundredth of a second.
A larger request is executed as well, and later requests wait longer.)"});
    if constexpr (V::reads) {
        if (v.map().find("bytes_per_second") || v.map().find("iops")) return;
        v.map().require("bytes_per_second", "bytes_per_second: 100M, or iops: 1000");
    }
}

constexpr std::string_view not_of_clones[] = {"devices",   "layout", "stripe_size", "provision",
                                              "page_size", "swap",   "restore"};
constexpr std::string_view not_of_templates[] = {
    "size",      "devices", "layout", "stripe_size", "provision", "page_size", "clone_of",
    "read_only", "keep",    "swap",   "ublk",        "save",      "restore"};

template <class V>
void visit(V& v, Of<CloneTemplate> auto& wanted) {
    v.value("of", wanted.of, text(rules::export_name),
            {.example = "debian", .about = R"(: the name of an export above this one.)"});
    v.value("size", wanted.size, bytes({rules::sector, rules::max_export_size}),
            {.words = "that of its source",
             .about = R"(, at least the size of its source: the size of each clone.
The rest reads as zeroes.)"});
    v.value("max", wanted.max, integer(1, rules::max_exports - 1),
            {.about = R"(: the maximum of clones.
Further clients are refused with ERR_POLICY.)"});
    v.value("max_per_peer", wanted.max_per_peer, integer(1, rules::max_exports - 1),
            {.words = "max",
             .about = R"(: the maximum of clones that one peer can have made, as defined under
.Va limits.connections_per_peer .)"});
    v.value("name", wanted.name,
            one_of<ClientId>({{"tls_name", ClientId::tls_name},
                              {"address", ClientId::address},
                              {"machine", ClientId::machine}}),
            {.about = R"(: what identifies a client, and ends the name of its clone:
.Ql tls_name
the first name in its verified certificate, in lower case, which needs TLS;
.Ql address
its IP address;
.Ql machine
the text after a slash in the name that it opens, such as
.Pa node/7c2f ,
of 1 to 64 letters, digits, or any of . _ @ : - between them.)"});
    if constexpr (V::reads) {
        if (v.good("of") && wanted.of.empty()) v.add("of", "is empty; write the name of an export");
        if (v.good("size") && *wanted.size % rules::sector != 0) {
            v.add("size",
                  fmt::format("is not a multiple of {} bytes; use for example {}", rules::sector,
                              size_text((*wanted.size / rules::sector + 1) * rules::sector)));
        }
    }
}

constexpr std::string_view not_with_origins[] = {"size",      "layout",   "stripe_size",
                                                 "provision", "clone_of", "clone_per_client",
                                                 "swap",      "save",     "restore"};

template <class V>
void visit(V& v, Of<OriginOptions> auto& origin) {
    v.value("file", origin.file, path(), {.words = "none", .about = R"(: a file.
It gets a shared lock, as
.Xr flock 1
makes it.
It must not change while the server runs: requests for contents that are not in memory fail then.)"});
    v.value("device", origin.device, path(),
            {.words = "none", .about = R"(: a block device, in place of a file.
It must not be mounted, and not be one that the server makes itself.)"});
    v.value("nbd", origin.nbd, nbd_uri(),
            {.words = "none",
             .about = R"(: an export of another NBD server, in place of a file: its URI, such as
.Ql nbd://host/image ,
.Ql nbds://host/image?tls-certificates=/etc/gpunbd/pki
or
.Ql nbd+unix:///image?socket=/run/nbd.sock .
It must not be an export of the same server.
If the connection is lost, requests wait up to 30 seconds for the server.)"});
    v.value("mode", origin.mode,
            one_of<OriginMode>({{"read-only", OriginMode::read_only},
                                {"write-through", OriginMode::write_through},
                                {"write-back", OriginMode::write_back}}),
            {.example = "read-only", .about = R"(.
.Ql read-only
refuses all requests that would change the contents.
.Ql write-through
answers a write when the origin has it.
.Ql write-back
answers it when the memory has it, and writes it later: all that was answered since the last FLUSH is
lost if the server crashes, unless
.Va keep
is true.
Both flush the origin before they answer a FLUSH, or a write with FUA.)"});
    v.value("cache", origin.cache, bytes({MiB, rules::max_export_size}),
            {.words = "what is available on the device at start",
             .about = R"(: the most memory that the contents take, at least 8 pages.
The page that was used least recently makes room for another one.)"});
    v.value("prefetch", origin.prefetch,
            one_of<Prefetch>({{"none", Prefetch::none},
                              {"sequential", Prefetch::sequential},
                              {"all", Prefetch::all}}),
            {.about = R"(.
.Ql sequential
reads ahead for clients that read in sequence, up to 32 MiB.
.Ql all
also reads everything from the beginning when the export is made, as far as it fits into
.Va cache .)"});
    if (V::writes && origin.mode != OriginMode::write_back) return;
    v.value("max_unwritten", origin.max_unwritten, bytes({MiB, rules::max_export_size}),
            {.words = "a quarter of the memory, at most 1G", .about = R"(: with
.Ql write-back ,
the most that the origin may lack.
Further writes wait.)"});
    v.value("max_age", origin.max_age, seconds(1, 86'400), {.about = R"(: with
.Ql write-back ,
how old a change becomes before it is written to the origin.)"});
    if constexpr (V::reads) {
        for (const char* const key : {"max_unwritten", "max_age"}) {
            if (origin.mode != OriginMode::write_back && v.map().find(key)) {
                v.add(key, "has no effect without mode: write-back");
            }
        }
        std::string_view given;
        for (const std::string_view key : {"file", "device", "nbd"}) {
            if (!v.map().find(key)) continue;
            if (!given.empty()) {
                v.add(key, fmt::format("excludes {}; leave one of the two out", given));
            }
            given = key;
        }
        if (given.empty()) v.map().require("file", "/srv/models.img");
    }
}

template <class V>
void visit(V& v, Of<SaveOptions> auto& save) {
    v.value("path", save.path, path(),
            {.example = "/var/lib/gpunbd/fast.img", .about = R"(: the file.
It is replaced when the new one is complete.
A name that ends in
.Pa .zst
is compressed.)"});
    v.value("at", save.at_stop, one_of<bool>({{"never", false}, {"stop", true}}), {.about = R"(.
.Ql stop
saves the export when the server ends after
.Dv SIGTERM
or
.Dv SIGINT ,
but not at an upgrade.)"});
    v.value("every", save.every, seconds(1, 604'800),
            {.words = "never", .about = R"(: the time from one save to the next.
The suffixes m and h stand for minutes and hours.)"});
    if constexpr (V::reads) {
        if (!v.map().find("at") && !v.map().find("every")) {
            v.map().require("every", "every: 15m, or at: stop");
        }
    }
}

template <class V>
void visit(V& v, Of<UblkOptions> auto& ublk) {
    v.value("id", ublk.id, integer(0, rules::max_ublk_id),
            {.words = "the first free one", .about = R"(: the number of the device, 0 for
.Pa /dev/ublkb0 .
Ids must be unique.)"});
    v.value("queues", ublk.queues, integer(1, rules::max_ublk_queues),
            {.words = "one per worker thread, at most 4", .about = R"(: the queues of the device.
Each belongs to one worker thread.)"});
    v.value("depth", ublk.depth, integer(1, rules::max_ublk_depth),
            {.about = R"(: the maximum of requests in flight in each queue.)"});
}

template <class V>
void visit(V& v, Of<ExportOptions> auto& exported) {
    if constexpr (V::writes) {
        if (!exported.clone_of.empty()) v.leave_out(not_of_clones, "as its source");
        if (exported.is_template()) v.leave_out(not_of_templates, "of its clones");
        if (exported.has_origin()) v.leave_out(not_with_origins, "excluded by origin");
    }
    v.value(
        "name", exported.name, text(rules::export_name),
        {.words = "the empty name, which is NBD's default export",
         .about =
             R"(, at most 4096 bytes, without control characters: the name by which clients open the export.
Names must be unique.)"});
    v.value(
        "description", exported.description, text(rules::description),
        {.words = "empty",
         .about =
             R"(, at most 4000 bytes: a text for clients, followed by the id of the contents.)"});
    v.value(
        "size", exported.size, export_size(),
        {.words = "100%, or 1G of the host if no GPU can be used",
         .about =
             R"(, a multiple of 512 bytes, up to 4194304T; or a share of the usable memory of the devices in whole percent,
1% to 100%.
The usable memory of the host is the memory that is available at start.)"});
    v.list("devices", exported.devices, Count{rules::max_devices},
           KeyInfo{.words = "the first GPU, or the host without a GPU",
                   .about = R"( device ids, in order, each once.
An empty list means the default.)"},
           device_id());
    v.value("layout", exported.layout,
            one_of<LayoutKind>({{"linear", LayoutKind::linear}, {"stripe", LayoutKind::stripe}}),
            {.about = R"(.
.Ql linear
fills one device after the other,
.Ql stripe
alternates between all devices.
With one device,
.Ql stripe
has no effect and a warning is logged.)"});
    v.value("stripe_size", exported.stripe_size, with_text(bytes({64 * KiB, 1024 * GiB}), 0, ""),
            {.words = "one page", .about = R"(, a multiple of
.Va page_size :
consecutive bytes on one device.
Needs
.Ql layout: stripe .)"});
    v.value("provision", exported.provision,
            one_of<Provision>({{"thin", Provision::thin}, {"full", Provision::full}}),
            {.words = "thin, or full where swap is true", .about = R"(.
.Ql thin
allocates memory on the first write,
.Ql full
allocates all of it at start.)"});
    v.value("page_size", exported.page_size, bytes({64 * KiB, 64 * MiB, true}),
            {.about = R"(: the unit in which memory is allocated and freed.)"});
    v.value("clone_of", exported.clone_of, text(rules::export_name),
            {.words = "a new, empty export",
             .about =
                 R"(: the name of an export above this one, whose contents this export has at first.
Both share memory until one of them is written.
The clone has the devices, layout, provision and page size of its source, and excludes these keys and
.Va swap .
Its
.Va size
defaults to that of its source and is at least that; the rest reads as zeroes.
It needs
.Va keep
exactly if its source has it, and then has the size of its source.
It is made when it is new; neither a reload makes it again, nor a start with kept contents.
With
.Ql read_only: true
it is a snapshot.)"});
    if constexpr (V::writes) {
        if (!exported.is_template()) v.comment("clone_per_client", "none");
    }
    if (!V::writes || exported.is_template()) {
        v.section("clone_per_client", exported.clone_per_client,
                  {.about = R"(: make a clone of another export for each client,
when the client first opens this export.
Its next connections open the same clone.
The clones are exports of their own, such as
.Pa node/10.1.0.11
for an export
.Pa node ,
which last until the server ends or
.Ic gpunbd export remove
removes them.
The other keys of the export apply to each clone.
Those that are not permitted beside
.Va clone_of ,
.Va size ,
.Va read_only ,
.Va ublk
and
.Va save
are excluded.
See
.Sx EXPORTS AT RUN TIME
in
.Xr gpunbd 8 .)"});
    }
    if constexpr (V::writes) {
        if (!exported.has_origin()) v.comment("origin", "none");
    }
    if (!V::writes || exported.has_origin()) {
        v.section(
            "origin", exported.origin,
            {.about =
                 R"(: a file, a block device or an export of another NBD server that provides the contents of the export.
The export has its size.
What clients read and write is kept in the memory of the export's device, which is a cache of it.
The other keys that set the size, the layout or the contents are excluded, and so are more than one device.
See
.Sx ORIGINS
in
.Xr gpunbd 8 .)"});
    }
    v.value("read_only", exported.read_only, boolean(),
            {.about = R"(: refuse all requests that would change the contents.)"});
    v.value("keep", exported.keep, boolean(),
            {.about = R"(: the contents outlive the server if a supervisor keeps them; see
.Sx KEPT CONTENTS .)"});
    v.value("swap", exported.swap, boolean(),
            {.about = R"(: the machine that serves the export may use it as swap space.
The process then locks its memory, has real-time priority, is an I/O flusher, and is exempt from the OOM killer.
A protection that is not available is an error.
A reload cannot enable swap.
.Va tls
and
.Va limits.idle
exclude swap.
See
.Sx SWAP
in
.Xr gpunbd 8 .)"});
    v.switched("ublk", exported.ublk, {.about = R"(: make a block device of this machine,
.Pa /dev/ublkbN ,
that uses the export without a connection; see
.Sx LOCAL BLOCK DEVICES
in
.Xr gpunbd 8 .
NBD clients can use the export at the same time.
.Va access
and
.Va tls
do not apply to the device.)"});
    v.section("block_size", exported.block_size,
              {.about = R"(: the block sizes that the server announces and enforces.
Clients that do not request block sizes
.Pq old clients, which use NBD_OPT_EXPORT_NAME
are served as well, but their requests must comply.)"});
    v.value("tls", exported.tls_required, one_of<bool>({{"optional", false}, {"required", true}}),
            {.about = R"(.
With
.Ql tls: {mode: optional} ,
an export that is
.Ql required
is neither listed nor opened without TLS.)"});
    v.list("access", exported.access,
           Count{rules::max_access_rules, 1,
                 "give a rule, or leave the key out to permit all clients"},
           KeyInfo{.words = "all clients have access", .about = R"( rules.
The first rule that matches a client decides its permission.
A client that matches no rule cannot open the export, and cannot distinguish it from an export that does not
exist.
A rule needs at least one condition, and matches if all its conditions do.
See
.Sx ACCESS RULES .)"});
    v.value("max_connections", exported.max_connections, integer(1, 1'000'000),
            {.words = "limits.connections",
             .about = R"(: the maximum of simultaneous connections to the export.
Further ones are refused with ERR_POLICY.)"});
    v.value("max_connections_per_peer", exported.max_connections_per_peer, integer(1, 1'000'000),
            KeyInfo{.words = "limits.connections_per_peer",
                    .about = R"(: the same for each peer, as defined under
.Va limits.connections_per_peer .)"});
    const auto rates = [&](std::string_view name, auto& member, KeyInfo info) {
        if constexpr (V::writes) {
            if (!member.any()) return v.comment(name, "no limit");
        }
        v.section(name, member, info);
    };
    rates("rates", exported.rates, {.about = R"(: limits for all clients of the export together.
Above a limit, the server stops reading from clients, and serves waiting requests in order of arrival.
Without the key there is no limit.)"});
    rates("rates_per_peer", exported.rates_per_peer,
          {.about = R"(: the same for each peer, over all its connections to the export.
Without the key there is no limit.)"});
    if constexpr (V::writes) {
        if (exported.save.path.empty()) v.comment("save", "none");
    }
    if (!V::writes || !exported.save.path.empty())
        v.section("save", exported.save, {.about = R"(: write the contents to a file.
Without the key they are not saved.)"});
    v.value("restore", exported.restore, path(),
            {.words = "none", .about = R"(: a file with the contents of the export when it is new,
raw or as
.Ic gpunbd export save
writes it.
Clients are refused until it is read.
Contents that are kept take precedence.)"});
    if constexpr (V::reads) {
        if (const auto error = rules::size_error(exported, "block_size.minimum");
            error && (v.good("size") || exported.is_template())) {
            v.add(exported.is_template() ? "clone_per_client" : "size", *error);
        }
        if (v.good("stripe_size") && !v.bad("layout") && !v.bad("page_size")) {
            const auto error = rules::stripe_error(exported, "layout:", "page_size");
            if (error) v.add("stripe_size", *error);
        }
        if (exported.swap && !v.map().find("provision")) exported.provision = Provision::full;
        for (const std::string_view key : not_of_clones) {
            if (exported.clone_of.empty() || !v.map().find(key)) continue;
            v.add(key, "a clone has what its source has; leave it out, or remove clone_of");
        }
        if (!exported.clone_of.empty() && v.good("size") && exported.size->percent != 0) {
            v.add("size", "a share has no meaning for a clone; write bytes, for example 16G");
        }
        for (const std::string_view key : not_of_templates) {
            if (!exported.is_template() || !v.map().find(key)) continue;
            v.add(key, "has no effect with clone_per_client; leave it out");
        }
        if (exported.has_origin()) {
            for (const std::string_view key : not_with_origins) {
                if (v.map().find(key)) v.add(key, "has no meaning with origin; leave it out");
            }
            if (exported.devices.size() > 1) {
                v.add("devices", "has several devices; an export with origin has one");
            }
            const bool is_writable = exported.origin.is_writable();
            if (v.map().find("read_only") && !exported.read_only && !is_writable) {
                v.add("read_only", "contradicts origin.mode; leave it out");
            }
            if (!v.bad("page_size") &&
                exported.origin.cache.value_or(~std::uint64_t{0}) / rules::fewest_cached_pages <
                    exported.page_size) {
                v.add("origin",
                      fmt::format("its cache is smaller than {} pages; use at least {}",
                                  rules::fewest_cached_pages,
                                  size_text(rules::fewest_cached_pages * exported.page_size)));
            }
            exported.read_only = exported.read_only || !is_writable;
        }
        if (exported.is_template() && exported.name.empty()) {
            v.add("clone_per_client",
                  "needs a name of the export, with which those of its clones begin; add for "
                  "example name: node");
        }
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
            {.words = "calibrated at start", .about = R"(: the size of a copy.)"});
    v.value("slots", pipeline.slots, integer(1, 8),
            {.about =
                 R"(: the chunks of one transfer that are in flight on each device of a stripe.)"});
    v.value("pinned", pipeline.pinned, bytes({MiB, GiB, true}),
            {.about = R"(: pinned memory per worker, device and direction.
If
.Va chunk_size
is given, the minimum is 2 x
.Va slots
x
.Va chunk_size ,
and a lower default is raised to it.)"});
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
    v.value("connections", limits.connections, integer(1, 1'000'000),
            {.about = R"(: the maximum of simultaneous connections.)"});
    // A written default would not follow a later change of `connections`.
    v.value("connections_per_peer", limits.connections_per_peer, integer(1, 1'000'000),
            {.words = "half of connections", .about = R"(, and at most
.Va connections :
the maximum of simultaneous connections of one peer.
A peer is an IPv4 address, an IPv6 /64 network, or a user of Unix sockets.)"});
    v.value("connections_reserved", limits.connections_reserved, integer(0, 999'999),
            {.words = "a sixteenth of connections", .about = R"(, and less than
.Va connections :
the last connections are reserved for peers that have opened an export before, and for listeners that
have fewer connections than this.)"});
    v.value("handshakes", limits.handshakes, integer(1, 1'000'000),
            {.words = "a sixteenth of connections, at least 16",
             .about = R"(: the maximum of clients in the handshake.
A further client replaces the oldest one of the peer that has the most.)"});
    v.value("handshake", limits.handshake, seconds(1, 3600),
            {.about = R"(: the time in which a client must open an export.)"});
    v.value(
        "idle", limits.idle, seconds(0, 604'800),
        {.about =
             R"(: a connection without a request for this time, or up to an eighth longer, is closed; 0 closes none.
Note that the kernel's client may be idle for hours.)"});
    v.value(
        "unreachable", limits.unreachable, seconds(0, 28'800),
        {.about =
             R"(: a TCP connection is closed if the machine of the client has not acknowledged data for this time, or up to
twice this time if no request is in flight.
Idle but reachable clients are not affected.
0 leaves the timeout to the kernel: a quarter of an hour, or two hours if no request is in flight.)"});
    v.value("drain", limits.drain, seconds(0, 3600),
            {.about = R"(: the grace period of clients after
.Dv SIGTERM .)"});
    v.value("in_flight_per_connection", limits.in_flight_per_connection, in_flight,
            {.about =
                 R"(: the payload of the unanswered requests of one connection, plus comparable work
(zeroes to write, 4K for each page to trim).
Above this limit, the server stops reading from the connection.)"});
    v.value("in_flight", limits.in_flight, in_flight, {.about = R"(, at least
.Va in_flight_per_connection :
the memory of the server that the requests of all connections use, that is, descriptors of requests, replies
without payload, and buffers.
It is divided evenly among the workers.)"});
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
              fmt::format("in_flight ({}) is less than in_flight_per_connection ({}); use at "
                          "least that",
                          size_text(limits.in_flight), size_text(limits.in_flight_per_connection)));
    }
}

template <class V>
void visit(V& v, Of<RetentionOptions> auto& keeping) {
    v.value("grace", keeping.grace, seconds(0, 604'800),
            {.about =
                 R"(: how long kept contents without an export remain before they are freed;
less if memory of their device is given back.
An export that is added again within this time has them intact.)"});
    v.value("socket", keeping.socket, text(rules::unix_path),
            {.words = "none; gpunbd kept uses the admin socket",
             .about = R"(: the path of a Unix socket for
.Ic gpunbd kept ,
at most 107 bytes, for servers without an admin socket.
It has mode 0600, is limited to the server's user and root, and has no other function.)"});
}

template <class V>
void visit(V& v, Of<AdminTcp> auto& tcp) {
    v.value("address", tcp.address, text(rules::address),
            {.words = "none", .about = R"(: a numeric address.
An address that other machines can reach needs
.Va token
or
.Va tls .)"});
    v.value("port", tcp.port, port());
    v.value("token", tcp.token, path(),
            {.words = "none",
             .about =
                 R"(: a file with one line of at least 16 characters, the token that clients send as
.Ql Authorization: Bearer .
Only its owner and group may have permission to read the file.
.Ql openssl rand -hex 32
prints a suitable token.
Without TLS, the token can be read on the network.)"});
    v.value("tls", tcp.tls, boolean(),
            {.about = R"(: require TLS and a client certificate that is signed by the authority in
.Va tls.certificates ,
independently of
.Va tls.mode .
SIGHUP reloads the certificates.)"});
    if constexpr (V::reads) {
        if (v.good("port") && !v.map().find("address")) {
            v.add("port", "has no effect without an address; add for example address: 127.0.0.1");
        }
    }
}

template <class V>
void visit(V& v, Of<AdminOptions> auto& admin) {
    v.value("socket", admin.socket, text(rules::admin_socket),
            {.words = "admin-PID.sock in the runtime folder",
             .about = R"(: the path of the Unix socket, at most 107 bytes, or
.Cm none .
It has mode 0600 and permits all operations.
If the default socket cannot be created, the server continues without it.
The folders of the default are listed under
.Fl -admin-socket
in
.Xr gpunbd 8 .)"});
    const bool off = !admin.tcp.address;
    if constexpr (V::writes) {
        if (off) v.comment("tcp", "none");
    }
    if (!V::writes || !off)
        v.section("tcp", admin.tcp, {.about = R"(.
Every user of the machine can reach a loopback address.
Without a token or TLS, the endpoint is read-only.)"});
    v.list(
        "hosts", admin.hosts, Count{rules::max_listeners},
        KeyInfo{.words = "none",
                .about = R"(: additional host names of this address, for browsers and other clients.
Requests for other names are refused, which prevents DNS rebinding.
The address itself,
.Cm localhost , 127.0.0.1
and
.Cm [::1]
are always accepted.)"},
        text(rules::admin_host));
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
    // A written default would require addresses that the machine may lack.
    const std::uint16_t port = TcpListener{}.port;
    const bool by_default = options.tcp == default_listeners(port) &&
                            options.unix_sockets.empty() && options.vsock.empty();
    if constexpr (V::reads) {
        if (v.map().find("listeners")) options.tcp.clear();
    }
    if constexpr (V::writes) {
        if (by_default) {
            v.comment("listeners",
                      fmt::format("port {} of 127.0.0.1 and, with IPv6, of ::1", port));
        }
    }
    if (!V::writes || !by_default)
        v.section("listeners", Listeners<std::remove_reference_t<decltype(options)>>{options});
    v.section("tls", options.tls);
    v.value(
        "insecure", options.insecure, boolean(),
        {.about =
             R"(: permit addresses that other machines can reach without access control; the server logs a warning.
See
.Sx ACCESS RULES .)"});
    v.list("devices", options.devices, Count{rules::max_devices},
           KeyInfo{.words = "none", .about = R"( devices with their settings.
Unlisted devices use the defaults.
Settings of a device that no export uses have no effect.)"});
    v.list("exports", options.exports, Count{rules::max_exports, 1, "give at least one export"},
           KeyInfo{.example = "exports: [{name: vram, size: 8G}]", .about = R"( exports.)"});
    v.section("pipeline", options.pipeline,
              {.about = R"(: the pinned memory for transfers to GPU memory that is not mapped.)"});
    v.value("threads", options.threads, with_text(integer(0, 1024), 0, "0  # one per usable CPU"),
            {.words = "0, one per usable CPU", .about = R"(: worker threads.
A CPU is usable if the affinity, the cpuset and the CPU quota of the server permit it.)"});
    v.section("limits", options.limits);
    v.section("keeping", options.keeping);
    v.section("admin", options.admin);
    v.section("log", options.log);
    v.value("state", options.state, path(),
            {.words = "none",
             .about =
                 R"(: a folder for the exports that are created at run time with
.Ic gpunbd export create --persist :
a file for each, which the server reads at start.
It belongs to the server's user.
See
.Sx EXPORTS AT RUN TIME
in
.Xr gpunbd 8 .)"});
    v.value("trace", options.trace, boolean(), {.about = R"(: keep latency histograms, which
.Dv SIGUSR1
prints.)"});
    if constexpr (V::reads) {
        if (const auto error = rules::swap_error(options)) {
            v.add(error->section, error->what);
        }
        if (const auto error = rules::device_error(options)) {
            v.add_to_item("devices", error->device, error->key, error->what);
        }
        if (const auto error = rules::clone_error(options)) {
            v.add_to_item("exports", error->exported, "clone_of", error->what);
        }
        if (const auto error = rules::template_error(options)) {
            v.add_to_item("exports", error->exported, "clone_per_client", error->what);
        }
        if (const auto error = rules::ublk_error(options)) {
            v.add_to_item("exports", error->exported, "ublk", error->what);
        }
        if (const auto error = rules::save_error(options)) {
            v.add_to_item("exports", error->exported, "save", error->what);
        }
        if (const auto error = rules::admin_error(options)) {
            v.add(error->section, error->what);
        }
    }
}

// --- the uses of the table -----------------------------------------------------------------------

const std::vector<KeyText>& all_keys() {
    static const std::vector<KeyText> all = [] {
        std::vector<KeyText> out;
        KeyLister lister{{}, "", out};
        lister.below("", Options{});
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
    for (std::size_t i = 0; i != out.tcp.size(); ++i) {
        out.tcp[i].port_option = {fmt::format("listeners.tcp[{}].port", i)};
    }
    out.admin.tcp.port_option = {"admin.tcp.port"};
    return out;
}

ExportOptions read_export(Report& report, const YamlNode& root) {
    ExportOptions out;
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

std::string to_yaml(const ExportOptions& options) {
    return fmt::format("{}\n", fmt::join(Writer::lines_of(options), "\n"));
}

}  // namespace gpunbd::config
