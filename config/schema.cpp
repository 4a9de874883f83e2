#include "config/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <stdexcept>

#include "config/device_drivers.hpp"
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
    v.value("address", tcp.address, text(rules::address),
            {.example = "127.0.0.1", .about = R"(: a numeric IPv4 or IPv6 address.
0.0.0.0 and
.Ql \(dq::\(dq
are every interface.)"});
    v.value("port", tcp.port, port());
    if constexpr (V::reads) {
        if (!v.good("address") || v.bad("port")) return;
        v.identity = {rules::tcp_identity(tcp), v.map().value(),
                      fmt::format("{} port {}", tcp.address, tcp.port)};
    }
}

template <class V>
void visit(V& v, Of<UnixListener> auto& socket) {
    v.value(
        "path", socket.path, text(rules::unix_path),
        {.example = "/run/gpunbd.sock", .about = R"(: path of the socket, at most 107 bytes.)"});
    v.value("mode", socket.mode, file_mode(), {.about = R"(, always read as octal.)"});
    v.value("owner", socket.owner, text(rules::owner),
            {.words = "as created", .about = R"(: user or user:group, by name or number.
The empty text leaves it as created.)"});
    if constexpr (V::reads) v.identify("path", socket.path, in_quotes(socket.path));
}

template <class V>
void visit(V& v, Of<VsockListener> auto& vsock) {
    v.value("cid", vsock.cid, vsock_cid(),
            {.about = R"(: the context id of this machine, which is 2 on a host.
1 is for clients on the same machine, where the kernel has vsock_loopback.)"});
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
    v.list(
        "vsock", listeners.options.vsock, Count{rules::max_listeners},
        KeyInfo{
            .words = "none",
            .about =
                R"( vsock listeners: the sockets by which virtual machines and their host reach each other.
Who can connect is up to the hypervisor; file modes and firewalls do not hold there.)"});
}

template <class V>
void visit(V& v, Of<TlsOptions> auto& tls) {
    v.value("mode", tls.mode,
            one_of<TlsMode>({{"off", TlsMode::off},
                             {"optional", TlsMode::optional},
                             {"required", TlsMode::required}}),
            {.words = "required where certificates or psk are given, else off", .about = R"(.
.Ql off
knows no TLS.
.Ql optional
lets clients choose; see
.Va exports[].tls .
.Ql required
answers nothing but the request for TLS in the clear.)"});
    v.value("certificates", tls.certificates, path(), {.words = "none", .about = R"(: a folder with
.Pa server-cert.pem ,
the server's certificate and those between it and the authority's;
.Pa server-key.pem ,
its private key, not encrypted;
.Pa ca-cert.pem ,
the authority that signs certificates of clients; and, if it is there,
.Pa ca-crl.pem ,
those that it has revoked.)"});
    v.value("psk", tls.psk, path(), {.words = "none", .about = R"(: a file of shared keys, one line
.Ar user : Ns Ar hexkey
for each user, of 32 to 128 hexadecimal digits, as
.Xr psktool 1
makes it.)"});
    if (V::writes && tls.certificates.empty()) return;
    v.value("verify_clients", tls.verify_clients, boolean(),
            {.about = R"(: a client that uses certificates has to show one that
.Pa ca-cert.pem
has signed.
Where it is false, such a client may be anybody; if an export without
.Va access
can then be had by anybody, a warning says so, at the start and after a reload that brings it about.
Only with certificates.)"});
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
    v.value("id", device.id, device_id(), {.example = example_device(), .about = R"(, as
.Ic gpunbd devices
lists them; see
.Sx MEMORY OF PCI CARDS .
Each device once.)"});
    v.value("reserve", device.reserve, bytes({0, max}),
            {.words = "the device's own",
             .about = R"(: memory that is never taken, for the device's other users.
Of host it is left of what the machine has available, and of what each control group that the server
is in may still take: MemoryMax= and MemoryHigh= of a service, the limit of a container.
A write that would need more is answered with ENOSPC.
Of a BAR it is its end, which is never touched.)"});
    v.value("capacity", device.capacity, bytes({64 * KiB, max}),
            {.words = "what there is", .about = R"(: at most so much is taken in all.)"});
    // Not written where it does not apply: reading it would be refused.
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
        {.words = "what can be mapped",
         .about =
             R"(, of a GPU only: at most so much of its memory is mapped into the CPU's address space, where
writes are received without a copy; 0 maps none.
Other programs may want a part of the GPU's PCIe window.)"});
    setting("gpu_use", device.gpu_use,
            one_of<GpuUse>({{"auto", GpuUse::automatic},
                            {"copy-engines", GpuUse::copy_engines},
                            {"all", GpuUse::all}}),
            {.about = R"(:
what may copy there, of a GPU only.
Kernels are the fastest way for small copies, but where another program computes on the same GPU they wait
for a time slice, and take it from that program; copy engines and the mapping do neither.
.Cm auto
uses kernels while nobody else computes there,
.Cm copy-engines
never does, and
.Cm all
always; see
.Sx SHARING A GPU .)"});
    setting(
        "force", device.force, boolean(),
        {.about =
             R"(, of a BAR only: it is served though a driver has the card, or though the card is a display.)"});
    if constexpr (V::reads) {
        v.identify("id", device.id, in_quotes(device.id));
    }
}

template <class V>
void visit(V& v, Of<BlockSizes> auto& blocks) {
    v.value(
        "minimum", blocks.minimum, bytes({1, 64 * KiB, true}),
        {.about = R"(: what every offset and length has to be a multiple of, as the size has to be
one; other requests are refused.
Memory is addressed to the byte, so that only clients can want more than 1.)"});
    v.value("preferred", blocks.preferred, bytes({512, rules::max_request_size, true}),
            {.words = "4K, or minimum where that is more", .about = R"(, from
.Va minimum
to
.Va maximum :
what clients do best with.)"});
    v.value("maximum", blocks.maximum, bytes({MiB, rules::max_request_size}),
            {.about = R"(, a multiple of
.Va minimum :
the most data in one request.)"});
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
        v.value(name, member, kind, KeyInfo{.words = "whichever it is", .about = about});
    };
    condition("network", rule.network, network(),
              R"(: the address of a TCP client, as 10.0.0.0/8, 2001:db8::/32, or one address.
No bit may be set behind the prefix.
IPv4 is IPv4 only, also where a socket for both has accepted it; a client with an IPv6 zone matches
without it.)");
    condition("uid", rule.uid, account(rules::user),
              R"(: the user at the other end of a Unix socket.)");
    condition(
        "gid", rule.gid, account(rules::group),
        R"(: the group of a process at the other end of a Unix socket, or one of its supplementary
groups.)");
    condition(
        "tls_name", rule.tls_name, text(rules::tls_name),
        R"(: a name in the client's certificate, which TLS has verified; the whole name, in any case.)");
    condition("psk_user", rule.psk_user, text(rules::psk_user),
              R"(: the user whose shared key the client uses in TLS.)");
    condition("cid", rule.cid, integer(0, 4'294'967'295),
              R"(: the context id of a vsock client, which is a virtual machine.)");
    v.value("mode", rule.mode,
            one_of<AccessMode>(
                {{"read-write", AccessMode::read_write}, {"read-only", AccessMode::read_only}}),
            {.about = R"(: what the clients that the rule matches may.)"});
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
    const auto none = [](std::string_view about) {
        return KeyInfo{.words = "as fast as it goes", .about = about};
    };
    v.value("bytes_per_second", rates.bytes_per_second, bytes({64 * KiB, 1024 * GiB}),
            none(R"(: payload of READ and WRITE.
Trims and zeroes have none, whatever their length.
One of this and
.Va iops
must be given.)"));
    v.value("iops", rates.iops, integer(1, 1'000'000'000),
            none(R"(: requests a second, of any kind, also those that are refused.)"));
    v.value(
        "burst", rates.burst, seconds(0, 3600),
        {.about =
             R"(: after a pause, at most what would have passed in such a time may come at once; 0 is a
hundredth of a second.
A request that is larger goes, too, and those behind it wait the longer.)"});
    if constexpr (V::reads) {
        if (v.map().find("bytes_per_second") || v.map().find("iops")) return;
        v.map().require("bytes_per_second", "bytes_per_second: 100M, or iops: 1000");
    }
}

template <class V>
void visit(V& v, Of<ExportOptions> auto& exported) {
    v.value("name", exported.name, text(rules::export_name),
            {.words = "the empty name, which is NBD's default export",
             .about =
                 R"(, at most 4096 bytes, without control characters: the name that clients ask for.
Names differ.)"});
    v.value(
        "description", exported.description, text(rules::description),
        {.words = "empty",
         .about =
             R"(, at most 4000 bytes: what clients are told about the export, in front of the id of its contents.)"});
    v.value(
        "size", exported.size, export_size(),
        {.words = "100%, or 1G of the host where no GPU can be used",
         .about =
             R"(, a multiple of 512 bytes, up to 4194304T; or a share of the devices' usable memory in whole
percent, 1% to 100%: of the host, a share of the memory that is available at start.)"});
    v.list("devices", exported.devices, Count{rules::max_devices},
           KeyInfo{.words = "the first GPU and, without one, the host",
                   .about = R"( device ids, in order, each once.
The empty list is the default, too.)"},
           device_id());
    v.value("layout", exported.layout,
            one_of<LayoutKind>({{"linear", LayoutKind::linear}, {"stripe", LayoutKind::stripe}}),
            {.about = R"(.
.Ql linear
fills the devices one after the other,
.Ql stripe
all in turn; with one device it has no effect, which the log says.)"});
    v.value("stripe_size", exported.stripe_size, with_text(bytes({64 * KiB, 1024 * GiB}), 0, ""),
            {.words = "one page", .about = R"(, a multiple of
.Va page_size :
bytes on one device before the next one's turn.
Only with layout: stripe.)"});
    v.value("provision", exported.provision,
            one_of<Provision>({{"thin", Provision::thin}, {"full", Provision::full}}),
            {.words = "thin, or full where swap is true", .about = R"(.
.Ql thin
takes memory when it is first written,
.Ql full
all of it at start.)"});
    v.value("page_size", exported.page_size, bytes({64 * KiB, 64 * MiB, true}),
            {.about = R"(: the unit in which memory is allocated and given back.)"});
    v.value("read_only", exported.read_only, boolean(),
            {.about = R"(: refuse what would change the export.)"});
    v.value("keep", exported.keep, boolean(),
            {.about = R"(: the contents outlive the server, where a supervisor keeps them; see
.Sx WHAT IS KEPT .)"});
    v.value("swap", exported.swap, boolean(),
            {.about = R"(: the machine that serves the export may swap to it.
The process then locks its memory, runs in real time, is an I/O flusher, and is not killed where memory has
run out; what of that cannot be had is an error that says what helps.
It is so from the start on, or not at all: a reload cannot bring it about.
.Va tls
and
.Va limits.idle
do not go with it.
See
.Sx SWAP
in
.Xr gpunbd 8 .)"});
    v.section("block_size", exported.block_size,
              {.about = R"(, which clients are told and have to keep to.
A client that never asks for it
.Pq an old one, by NBD_OPT_EXPORT_NAME
is served as well; its requests are refused where they do not fit.)"});
    v.value("tls", exported.tls_required, one_of<bool>({{"optional", false}, {"required", true}}),
            {.about = R"(.
With
.Ql tls: {mode: optional} ,
an export that is
.Ql required
is neither listed nor opened in the clear.)"});
    v.list("access", exported.access,
           Count{rules::max_access_rules, 1, "give a rule, or leave it out: then everybody may"},
           KeyInfo{.words = "everybody may",
                   .about = R"( rules, of which the first that matches a client decides what it may.
A client that none of them matches may not open the export, and cannot tell it from one that does not
exist.
All that a rule names must match, and it must name something.
See
.Sx WHO MAY OPEN WHAT .)"});
    v.value("max_connections", exported.max_connections, integer(1, 1'000'000),
            {.words = "as many as limits.connections lets in",
             .about = R"(: connections to the export at once.
One more is refused with ERR_POLICY.)"});
    v.value("max_connections_per_peer", exported.max_connections_per_peer, integer(1, 1'000'000),
            KeyInfo{.words = "as many as limits.connections_per_peer lets in",
                    .about = R"(: the same of each peer, which is what it is for
.Va limits.connections_per_peer .)"});
    const auto rates = [&](std::string_view name, auto& member, KeyInfo info) {
        if constexpr (V::writes) {
            if (!member.any()) return v.comment(name, "no limit");
        }
        v.section(name, member, info);
    };
    rates("rates", exported.rates,
          {.about = R"(: what all clients of the export together may ask of it.
Past it the server stops reading from them; those who wait have their turns in the order in which they
came.
Without the key there is no limit.)"});
    rates("rates_per_peer", exported.rates_per_peer,
          {.about = R"(: the same of each peer, over all its connections to the export.
Without the key there is no limit.)"});
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
            {.words = "calibrated at start", .about = R"(: bytes per copy.)"});
    v.value("slots", pipeline.slots, integer(1, 8),
            {.about = R"(: chunks of one transfer in flight on each device of a stripe.)"});
    v.value("pinned", pipeline.pinned, bytes({MiB, GiB, true}),
            {.about = R"(: pinned bytes per worker, device and direction.
Where
.Va chunk_size
is given, at least 2 x
.Va slots
x
.Va chunk_size ,
which replaces a lower default.)"});
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
            {.about = R"(: connections at once.)"});
    // Written out, a default would not follow `connections`.
    v.value("connections_per_peer", limits.connections_per_peer, integer(1, 1'000'000),
            {.words = "half of connections", .about = R"(, and at most
.Va connections :
connections at once of one peer: an IPv4 address, an IPv6 network of 64 bits, or a user at the other
end of Unix sockets.)"});
    v.value("connections_reserved", limits.connections_reserved, integer(0, 999'999),
            {.words = "a sixteenth of connections", .about = R"(, and less than
.Va connections :
the last connections are kept for peers that have been served an export before, and for listeners with
fewer connections than that.)"});
    v.value("handshakes", limits.handshakes, integer(1, 1'000'000),
            {.words = "a sixteenth of connections, at least 16",
             .about = R"(: clients that have yet to choose their export, at once.
One more takes the place of the one that has waited longest, among those of the peer with most of them.)"});
    v.value("handshake", limits.handshake, seconds(1, 3600),
            {.about = R"(: what a client has to choose its export.)"});
    v.value(
        "idle", limits.idle, seconds(0, 604'800),
        {.about =
             R"(: a connection that has asked for nothing for so long, or up to an eighth longer,
is closed; 0 closes none.
The kernel's client may rightly be idle for hours.)"});
    v.value(
        "unreachable", limits.unreachable, seconds(0, 28'800),
        {.about =
             R"(: a connection over TCP whose client has vanished without a word, because its machine or the
network between is gone, is closed after so long; up to twice as long where nothing was under way.
A client that pauses, but is there, is none.
0 leaves it to the kernel, which takes a quarter of an hour, and two hours where nothing was under way.)"});
    v.value("drain", limits.drain, seconds(0, 3600),
            {.about = R"(: what clients have to finish after
.Dv SIGTERM .)"});
    v.value(
        "in_flight_per_connection", limits.in_flight_per_connection, in_flight,
        {.about =
             R"(: payload of the unanswered requests of one connection, and work that takes as long
(zeroes that are written, 4K for each page that is trimmed); past it the server stops reading from the
connection.)"});
    v.value("in_flight", limits.in_flight, in_flight, {.about = R"(, at least
.Va in_flight_per_connection :
memory that the requests of all connections take of the server itself: their descriptions, answers
that are not payload, buffers.
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
              fmt::format("in_flight ({}) is less than in_flight_per_connection ({}); let all "
                          "connections have at least what one may have",
                          size_text(limits.in_flight), size_text(limits.in_flight_per_connection)));
    }
}

template <class V>
void visit(V& v, Of<RetentionOptions> auto& keeping) {
    v.value(
        "grace", keeping.grace, seconds(0, 604'800),
        {.about =
             R"(: how long contents stay that no export of the configuration has any more; then their
memory is given back.
An export that has them again before then has them whole.)"});
    v.value("socket", keeping.socket, text(rules::unix_path),
            {.words = "none; gpunbd kept asks the admin socket",
             .about = R"(: path of a Unix socket, at most 107 bytes, by which
.Ic gpunbd kept
may ask what is kept: for servers without an admin socket.
It has mode 0600, answers the server's user and root, and answers nothing else.)"});
}

template <class V>
void visit(V& v, Of<AdminTcp> auto& tcp) {
    v.value("address", tcp.address, text(rules::address),
            {.words = "none", .about = R"(: a numeric address.
One that other machines reach needs
.Va token
or
.Va tls .)"});
    v.value("port", tcp.port, port());
    v.value("token", tcp.token, path(),
            {.words = "none",
             .about = R"(: a file with one line of at least 16 characters that clients show as
.Ql Authorization: Bearer ;
only its owner and group may read it.
.Ql openssl rand -hex 32
makes one.
Without TLS it can be read on the way.)"});
    v.value(
        "tls", tcp.tls, boolean(),
        {.about = R"(: clients have to speak TLS, and to show a certificate that the authority in
.Va tls.certificates
has signed, whatever
.Va tls.mode
says of exports.
SIGHUP reads the certificates again.)"});
    if constexpr (V::reads) {
        if (v.good("port") && !v.map().find("address")) {
            v.add("port", "there is no address that it is of; add for example address: 127.0.0.1");
        }
    }
}

template <class V>
void visit(V& v, Of<AdminOptions> auto& admin) {
    v.value("socket", admin.socket, text(rules::admin_socket),
            {.words = "admin-PID.sock in the service's folder, or one of this user",
             .about = R"(: path of the Unix socket, at most 107 bytes, or
.Cm none .
It has mode 0600: who may open it may do everything there.
Where that cannot be made, the server goes on without it.
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
Any user of the machine reaches a loopback address: with neither token nor TLS it only tells.)"});
    v.list(
        "hosts", admin.hosts, Count{rules::max_listeners},
        KeyInfo{.words = "none", .about = R"(: names by which browsers and others call this address.
Requests for other names are refused, so that no page of another site gets here by a name of its own.
The address itself,
.Cm localhost , 127.0.0.1
and
.Cm [::1]
are known.)"},
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
    v.value(
        "insecure", options.insecure, boolean(),
        {.about =
             R"(: listen where other machines can reach it though nothing keeps strangers out, with a warning.
See
.Sx WHO MAY OPEN WHAT .)"});
    v.list("devices", options.devices, Count{rules::max_devices},
           KeyInfo{.words = "none, each has its own defaults",
                   .about = R"( devices that are not to have their defaults.
A device that no export uses has no effect.)"});
    v.list("exports", options.exports, Count{rules::max_exports, 1, "give at least one export"},
           KeyInfo{.example = "exports: [{name: vram, size: 8G}]", .about = R"( exports.)"});
    v.section(
        "pipeline", options.pipeline,
        {.about = R"(: the pinned memory through which data passes to a GPU that the CPU cannot
address.)"});
    v.value("threads", options.threads, with_text(integer(0, 1024), 0, "0  # one per core"),
            {.words = "0, one per core", .about = R"(: worker threads.)"});
    v.section("limits", options.limits);
    v.section("keeping", options.keeping);
    v.section("admin", options.admin);
    v.section("log", options.log);
    v.value("trace", options.trace, boolean(), {.about = R"(: keep histograms of latencies, which
.Dv SIGUSR1
prints.)"});
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
