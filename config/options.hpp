// Everything a person can set, typed and checked: what YAML and the command line become.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/network.hpp"

namespace gpunbd::config {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;
inline constexpr std::uint64_t GiB = 1024 * MiB;

// A size in bytes, or a share of the devices' usable memory in percent ("100%").
struct Size {
    std::uint64_t bytes = 0;
    std::uint32_t percent = 0;  // 1..100; 0: `bytes` counts
    bool operator==(const Size&) const = default;
};

// The flag or key that sets a value, for messages. It makes no difference between equal options.
struct OptionName {
    std::string text;
    bool operator==(const OptionName& /*other*/) const { return true; }
};

struct TcpListener {
    std::string address;  // numeric IPv4 or IPv6
    std::uint16_t port = 10809;
    bool optional = false;  // a default that is left out where the machine has no such address
    OptionName port_option = {"-p"};
    bool operator==(const TcpListener&) const = default;
};

inline constexpr const char* admin_flag = "--admin ADDRESS:PORT";

// The listeners of a server that is given none.
inline std::vector<TcpListener> default_listeners(std::uint16_t port) {
    return {{.address = "127.0.0.1", .port = port},
            {.address = "::1", .port = port, .optional = true}};
}

struct UnixListener {
    std::string path;
    std::uint32_t mode = 0600;
    std::string owner;  // "user", "user:group" or empty: leave as created
    bool operator==(const UnixListener&) const = default;
};

inline constexpr std::uint32_t any_cid = 0xffffffff;  // VMADDR_CID_ANY

// The sockets of virtual machines and their hosts.
struct VsockListener {
    std::uint32_t cid = any_cid;  // of this machine
    std::uint32_t port = 10809;
    bool operator==(const VsockListener&) const = default;
};

// Whether clients may, or must, begin with STARTTLS: NBD's NOTLS, SELECTIVETLS and FORCEDTLS.
enum class TlsMode { off, optional, required };

struct TlsOptions {
    TlsMode mode = TlsMode::off;
    std::string certificates;    // a folder: ca-cert.pem, server-cert.pem, server-key.pem
    bool verify_clients = true;  // a client has to show a certificate that the CA has signed
    std::string psk;             // a file of shared keys: a line "user:hexkey" for each

    // What proves who the server is: without it there is no TLS.
    bool has_credentials() const { return !certificates.empty() || !psk.empty(); }
    bool operator==(const TlsOptions&) const = default;
};

// Where a GPU is shared with programs that compute on it.
enum class GpuUse {
    automatic,     // kernels of ours while nobody else computes there
    copy_engines,  // none
    all,           // kernels whatever others do
};

// What a device keeps back for its other users, and how its data path is tuned.
struct DeviceOptions {
    std::string id;                         // as its driver spells it
    std::optional<std::uint64_t> reserve;   // bytes never taken; unset: the device's own default
    std::optional<std::uint64_t> capacity;  // at most so many bytes in all; unset: what is there
    // The settings from here on apply to the devices of some drivers only.
    // Bytes mapped into the CPU's address space at most; unset: as much as possible.
    std::optional<std::uint64_t> mapped;
    GpuUse gpu_use = GpuUse::automatic;
    bool force = false;  // although another program uses the device
    bool operator==(const DeviceOptions&) const = default;
};

enum class LayoutKind { linear, stripe };
enum class Provision { thin, full };

// What the requests of clients keep to; NBD's "Block size constraints". All in bytes.
struct BlockSizes {
    std::uint64_t minimum = 1;               // a power of two, up to 64 KiB
    std::optional<std::uint64_t> preferred;  // a power of two from 512 on; unset: best()
    std::uint64_t maximum = 32 * MiB;        // of a payload; a multiple of `minimum`

    std::uint64_t best() const {
        return preferred.value_or(std::max<std::uint64_t>(4 * KiB, minimum));
    }
    bool operator==(const BlockSizes&) const = default;
};

// A user or a group of this machine.
struct Account {
    std::uint32_t id = 0;
    std::string name;  // as it was written: a name or a number
    bool operator==(const Account&) const = default;
};

// Where something stands in its file, 0: nowhere. Moving it there changes nothing.
struct Line {
    int number = 0;
    bool operator==(const Line&) const { return true; }
};

enum class AccessMode { read_write, read_only };

// Whom it is about: who matches all that is named; and what they may.
struct AccessRule {
    std::optional<Network> network;       // of a TCP client's address
    std::optional<Account> uid;           // of a Unix socket's client
    std::optional<Account> gid;           // that or one of its supplementary groups
    std::optional<std::string> tls_name;  // of its verified certificate, whatever the case
    std::optional<std::string> psk_user;  // whose shared key it used
    std::optional<std::uint32_t> cid;     // of a vsock client
    AccessMode mode = AccessMode::read_write;
    Line line;
    bool operator==(const AccessRule&) const = default;
};

// How much may be asked of an export.
struct Rates {
    std::optional<std::uint64_t> bytes_per_second;  // of READ and WRITE
    std::optional<std::uint64_t> iops;              // requests a second, of any kind
    std::chrono::seconds burst{1};  // of both rates, what may come at once after a pause
    bool any() const { return bytes_per_second || iops; }
    bool operator==(const Rates&) const = default;
};

struct ExportOptions {
    std::string name;
    std::string description;
    std::optional<Size> size;  // unset: all that is available, or a little where there is no GPU
    std::vector<std::string> devices;  // ids in order; "auto" has been left to the server
    LayoutKind layout = LayoutKind::linear;
    std::uint64_t stripe_size = 0;  // bytes, a multiple of page_size; 0: one page
    Provision provision = Provision::thin;
    std::uint64_t page_size = 2 * MiB;  // a power of two, 64 KiB to 64 MiB
    bool read_only = false;
    bool keep = false;  // its contents outlive the server, where a supervisor keeps them
    bool swap = false;  // its own clients may swap to it: the process protects itself
    BlockSizes block_size;
    bool tls_required = false;       // to be had in TLS only, also where TLS is optional
    std::vector<AccessRule> access;  // the first that matches decides; empty: everybody may
    std::optional<std::uint32_t> max_connections;           // at once; unset: as many as there are
    std::optional<std::uint32_t> max_connections_per_peer;  // likewise, of each peer
    Rates rates;                                            // of all clients together
    Rates rates_per_peer;
    bool operator==(const ExportOptions&) const = default;
};

// The pinned pipeline of a device that the CPU cannot address.
struct PipelineOptions {
    std::optional<std::uint64_t>
        chunk_size;                   // bytes, a power of two, 64 KiB to 16 MiB; unset: calibrated
    std::uint32_t slots = 2;          // chunks of one transfer in flight on each device, 1 to 8
    std::uint64_t pinned = 16 * MiB;  // bytes per worker, device and direction, power of two
    bool operator==(const PipelineOptions&) const = default;
};

struct Limits {
    std::uint32_t connections = 4096;
    std::optional<std::uint32_t> connections_per_peer;  // unset: max_per_peer()
    std::optional<std::uint32_t> connections_reserved;  // unset: reserved()
    std::optional<std::uint32_t> handshakes;            // at once; unset: max_handshakes()
    std::chrono::seconds idle{0};                       // 0: for as long as a client likes
    std::chrono::seconds unreachable{300};              // 0: for as long as the kernel likes
    std::chrono::seconds handshake{10};
    std::chrono::seconds drain{10};                     // grace after SIGTERM
    std::uint64_t in_flight_per_connection = 64 * MiB;  // bytes
    std::uint64_t in_flight = 1 * GiB;                  // bytes, over all connections

    std::uint32_t max_per_peer() const {
        return connections_per_peer.value_or(std::max(1U, connections / 2));
    }
    // Of the connections, the last ones: for known peers and other listeners.
    std::uint32_t reserved() const { return connections_reserved.value_or(connections / 16); }
    std::uint32_t max_handshakes() const {
        return handshakes.value_or(std::max(16U, connections / 16));
    }
    bool operator==(const Limits&) const = default;
};

// Contents that outlive the server, also those that the configuration has no export for any more.
struct RetentionOptions {
    std::chrono::seconds grace{300};  // until their memory is given back
    // Where `gpunbd kept` asks what there is; unset: in a folder of the system's for such.
    std::optional<std::string> socket;
    bool operator==(const RetentionOptions&) const = default;
};

// Where a server is asked by TCP what it does, and told what to do.
struct AdminTcp {
    std::optional<std::string> address;  // numeric; unset: nowhere
    std::uint16_t port = 9809;
    std::string token;  // a file that holds a secret which clients have to show; empty: none
    bool tls = false;   // by the certificates of TlsOptions, which clients have to have, too
    OptionName port_option = {admin_flag};
    bool operator==(const AdminTcp&) const = default;
};

inline constexpr const char* no_socket = "none";

// The same by a Unix socket.
struct AdminOptions {
    std::optional<std::string> socket;  // no_socket; unset: in a folder of the system's for such
    AdminTcp tcp;
    std::vector<std::string> hosts;  // what else the address is called
    bool operator==(const AdminOptions&) const = default;
};

enum class LogFormat { text, json };
struct LogOptions {
    std::string level = "info";  // trace, debug, info, warn, error
    LogFormat format = LogFormat::text;
    bool operator==(const LogOptions&) const = default;
};

struct Options {
    std::vector<TcpListener> tcp;
    std::vector<UnixListener> unix_sockets;
    std::vector<VsockListener> vsock;
    TlsOptions tls;
    bool insecure = false;  // listen where others can reach it, with nothing that keeps them out
    std::vector<DeviceOptions> devices;
    std::vector<ExportOptions> exports;
    PipelineOptions pipeline;
    std::uint32_t threads = 0;  // workers; 0: one per core
    Limits limits;
    RetentionOptions keeping;
    AdminOptions admin;
    LogOptions log;
    bool trace = false;  // keep latency histograms; SIGUSR1 prints them

    bool any_swap() const {
        return std::any_of(exports.begin(), exports.end(),
                           [](const ExportOptions& each) { return each.swap; });
    }
    bool operator==(const Options&) const = default;
};

// One thing wrong, where, and what would be right. `line` and `column` count from 1; 0: no place.
struct Problem {
    std::string file;
    int line = 0;
    int column = 0;
    std::string key;   // "exports[1].page_size"
    std::string what;  // "2000 is not a power of two; use for example 2M"

    // "file:line:column: key: what", less what is missing.
    std::string text() const;
};

}  // namespace gpunbd::config
