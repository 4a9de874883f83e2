// The typed and validated options, which the configuration file and the command line set.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/network.hpp"
#include "config/shared_list.hpp"

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
    bool optional = false;            // skipped if the machine lacks the address; for defaults
    OptionName port_option = {"-p"};  // for messages
    bool operator==(const TcpListener&) const = default;
};

inline constexpr const char* admin_flag = "--admin ADDRESS:PORT";

// The listeners of a server without configured ones.
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

// A socket between a virtual machine and its host.
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
    bool verify_clients = true;  // require client certificates that the CA has signed
    std::string psk;             // a file of shared keys, one line "user:hexkey" each

    // The server's credentials; required for TLS.
    bool has_credentials() const { return !certificates.empty() || !psk.empty(); }
    bool operator==(const TlsOptions&) const = default;
};

// Which units copy on a GPU that other programs may use for computation.
enum class GpuUse {
    automatic,     // kernels unless another program computes on the GPU
    copy_engines,  // no kernels
    all,           // always kernels
};

// All memory of a device that exports can use.
inline constexpr std::uint64_t all_memory = ~std::uint64_t{0};

// Memory to which pages of a device are moved when the device has to give memory back.
struct SpillOptions {
    std::string device;      // its id
    std::uint64_t size = 0;  // bytes, for the pages of all exports together
    bool encrypt = true;     // for files
    bool operator==(const SpillOptions&) const = default;
};

// Limits of the memory use of a device, and settings of its data path.
struct DeviceOptions {
    std::string id;                        // in the spelling of its driver
    std::optional<std::uint64_t> reserve;  // bytes left to other users; unset: the device's default
    std::optional<std::uint64_t> capacity;  // maximum in bytes; unset: the memory of the device
    // The following settings apply to the devices of some drivers only.
    // Maximum of bytes mapped into the CPU's address space; unset: as much as possible.
    std::optional<std::uint64_t> mapped;
    GpuUse gpu_use = GpuUse::automatic;
    // Maximum of bytes that the driver may move to host memory for other programs.
    std::uint64_t revocable = 0;  // or all_memory
    bool force = false;           // use the device even if another program uses it
    std::uint64_t keep_free = 0;  // bytes that other programs find free at any time; 0: off
    // Maximum of bytes per second of pages that return; unset: no limit.
    std::optional<std::uint64_t> reclaim_rate = {};
    std::vector<SpillOptions> spill = {};  // in the order in which it is used
    bool operator==(const DeviceOptions&) const = default;
};

enum class LayoutKind { linear, stripe };
enum class Provision { thin, full };

// NBD's "Block size constraints" of an export, in bytes.
struct BlockSizes {
    std::uint64_t minimum = 1;               // a power of two, up to 64 KiB
    std::optional<std::uint64_t> preferred;  // a power of two, 512 or more; unset: best()
    std::uint64_t maximum = 32 * MiB;        // of a payload; a multiple of `minimum`

    std::uint64_t best() const {
        return preferred.value_or(std::max<std::uint64_t>(4 * KiB, minimum));
    }
    bool operator==(const BlockSizes&) const = default;
};

// A user or a group of this machine.
struct Account {
    std::uint32_t id = 0;
    std::string name;  // as given: a name or a number
    bool operator==(const Account&) const = default;
};

// A line number of the file, 0 if there is none. All compare equal, because the position of an
// option does not change its meaning.
struct Line {
    int number = 0;
    bool operator==(const Line&) const { return true; }
};

enum class AccessMode { read_write, read_only };

// One access rule: a client matches if it matches every set condition.
struct AccessRule {
    std::optional<Network> network;       // contains the address of a TCP client
    std::optional<Account> uid;           // of a client on a Unix socket
    std::optional<Account> gid;           // its group or one of its supplementary groups
    std::optional<std::string> tls_name;  // a name in its verified certificate, in any case
    std::optional<std::string> psk_user;  // the user of its shared key
    std::optional<std::uint32_t> cid;     // of a vsock client
    AccessMode mode = AccessMode::read_write;
    Line line;
    bool operator==(const AccessRule&) const = default;
};

// Rate limits of an export.
struct Rates {
    std::optional<std::uint64_t> bytes_per_second;  // of READ and WRITE
    std::optional<std::uint64_t> iops;              // requests a second, of any kind
    std::chrono::seconds burst{1};                  // the burst after a pause, for both rates
    bool any() const { return bytes_per_second || iops; }
    bool operator==(const Rates&) const = default;
};

// A block device of this machine that the server makes for an export.
struct UblkOptions {
    bool enabled = false;
    std::optional<std::uint32_t> id = {};  // N of /dev/ublkbN; unset: the kernel's first free one
    std::optional<std::uint32_t> queues = {};  // unset: one per worker, at most default_queues
    std::uint32_t depth = 128;                 // requests in flight in each queue
    static constexpr std::uint32_t default_queues = 4;
    bool operator==(const UblkOptions&) const = default;
};

// Writes the contents of an export to a file from time to time.
struct SaveOptions {
    std::string path;                           // empty: never
    bool at_stop = false;                       // when the server stops
    std::optional<std::chrono::seconds> every;  // unset: not periodically
    bool operator==(const SaveOptions&) const = default;
};

// What identifies a client that gets a clone of its own.
enum class ClientId {
    tls_name,  // the first name in its verified certificate
    address,   // its IP address
    machine,   // the text that it appends to the name of the export
};

// Makes a clone of another export for each client of an export.
struct CloneTemplate {
    std::string of;                     // the other export; empty: none, the export is an own one
    std::optional<std::uint64_t> size;  // bytes, of each clone; unset: that of the other export
    std::uint32_t max = 200;            // clones
    std::optional<std::uint32_t> max_per_peer;  // that one peer can have made; unset: max
    ClientId name = ClientId::address;
    bool operator==(const CloneTemplate&) const = default;
};

// When a write to an export with an origin is complete.
enum class OriginMode {
    read_only,      // there are none
    write_through,  // when the origin has it
    write_back,     // when the memory has it; the origin gets it later
};

// Which of its pages are read before a client needs them.
enum class Prefetch {
    none,
    sequential,  // those that follow for clients that read in sequence
    all,         // besides, all from the start, as far as they fit into the memory
};

// A file, a block device or an export of another server that provides the contents of an export.
// The memory of the export is a cache of it.
struct OriginOptions {
    std::string file;      // a path
    std::string device;    // the path of a block device
    std::string nbd = {};  // the URI of an export; two of the three are empty
    OriginMode mode = OriginMode::read_only;
    std::optional<std::uint64_t> cache;  // bytes in memory at most; unset: what is available
    Prefetch prefetch = Prefetch::sequential;
    // Of OriginMode::write_back: how much the origin may lack, in bytes, and for how long. Unset: a
    // quarter of the memory, at most 1 GiB.
    std::optional<std::uint64_t> max_unwritten = {};
    std::chrono::seconds max_age{30};

    bool is_writable() const { return mode != OriginMode::read_only; }
    // Of the file or device, or the URI, which has no password; empty: none.
    const std::string& path() const { return !nbd.empty() ? nbd : file.empty() ? device : file; }
    bool operator==(const OriginOptions&) const = default;
};

// Where the options of an export come from. It makes no difference between equal options.
struct Provenance {
    bool run_time = false;        // created while the server ran; unset: the configuration
    bool persistent = false;      // also in the state folder
    std::int64_t created = 0;     // if run_time: seconds since 1970; 0: unknown
    bool resized = false;         // of the configuration, but with another size
    bool made_read_only = false;  // by an administrator, until the next reload
    std::optional<Size> configured_size = {};  // if resized: its size there
    std::string made_by = {};  // the export with the CloneTemplate that made it; empty: none
    ClientId client_id = ClientId::address;  // if made_by: of that template
    std::string peer = {};                   // if made_by: the peer_key() of the first client
    // If it was renamed: storage::instance_text() of its contents then, which have its name from
    // that time on, even if the server was killed in between.
    std::string renamed_contents = {};
    bool operator==(const Provenance& /*other*/) const { return true; }
};

struct ExportOptions {
    std::string name;
    std::string description;
    std::optional<Size> size;          // unset: all available memory, or 1 GiB without a GPU
    std::vector<std::string> devices;  // ids in order; empty: chosen by the server
    LayoutKind layout = LayoutKind::linear;
    std::uint64_t stripe_size = 0;  // bytes, a multiple of page_size; 0: one page
    Provision provision = Provision::thin;
    std::uint64_t page_size = 2 * MiB;  // a power of two, 64 KiB to 64 MiB
    // The source of its first contents, its devices and its layout: an export; empty: none.
    std::string clone_of;
    CloneTemplate clone_per_client;
    OriginOptions origin;
    bool read_only = false;
    bool keep = false;  // contents outlive the server if a supervisor keeps them
    bool swap = false;  // this machine may swap to it; protects the process
    UblkOptions ublk;
    BlockSizes block_size;
    bool tls_required = false;       // require TLS, even if TlsOptions::mode is optional
    std::vector<AccessRule> access;  // the first match decides; empty: all have access
    std::optional<std::uint32_t> max_connections;           // unset: Limits::connections
    std::optional<std::uint32_t> max_connections_per_peer;  // unset: max_per_peer()
    Rates rates;                                            // of all clients together
    Rates rates_per_peer;
    std::string restore;  // a saved file with the contents of a new export; empty: none
    SaveOptions save;
    Provenance provenance;

    // It has no contents itself: the server makes exports from it.
    bool is_template() const { return !clone_per_client.of.empty(); }
    bool has_origin() const { return !origin.path().empty(); }
    // Its contents never change. A clone that is read-only for the moment, or for one client, is
    // none.
    bool is_snapshot() const {
        return read_only && !clone_of.empty() && !provenance.made_read_only &&
               provenance.made_by.empty();
    }
    bool operator==(const ExportOptions&) const = default;
};

using ExportList = SharedList<ExportOptions>;

// The staging memory of a device.
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
    std::chrono::seconds idle{0};                       // 0: no limit
    std::chrono::seconds unreachable{300};              // 0: the defaults of the kernel
    std::chrono::seconds handshake{10};
    std::chrono::seconds drain{10};                     // grace after SIGTERM
    std::uint64_t in_flight_per_connection = 64 * MiB;  // bytes
    std::uint64_t in_flight = 1 * GiB;                  // bytes, over all connections

    std::uint32_t max_per_peer() const {
        return connections_per_peer.value_or(std::max(1U, connections / 2));
    }
    // The last connections are reserved for known peers and for listeners with few connections.
    std::uint32_t reserved() const { return connections_reserved.value_or(connections / 16); }
    std::uint32_t max_handshakes() const {
        return handshakes.value_or(std::max(16U, connections / 16));
    }
    bool operator==(const Limits&) const = default;
};

// Contents that outlive the server, with or without an export of the configuration.
struct RetentionOptions {
    std::chrono::seconds grace{300};  // until contents without an export are freed
    // A Unix socket for `gpunbd kept` only; unset: none.
    std::optional<std::string> socket;
    bool operator==(const RetentionOptions&) const = default;
};

// The TCP address of the admin endpoint.
struct AdminTcp {
    std::optional<std::string> address;  // numeric; unset: no TCP
    std::uint16_t port = 9809;
    std::string token;  // a file with the secret of clients; empty: none
    bool tls = false;   // with the certificates of TlsOptions; requires client certificates
    OptionName port_option = {admin_flag};
    bool operator==(const AdminTcp&) const = default;
};

inline constexpr const char* no_socket = "none";

// The admin endpoint.
struct AdminOptions {
    std::optional<std::string> socket;  // no_socket: none; unset: in the runtime folder
    AdminTcp tcp;
    std::vector<std::string> hosts;  // additional host names of the address
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
    bool insecure = false;  // permit reachable addresses without access control
    std::vector<DeviceOptions> devices;
    ExportList exports;
    PipelineOptions pipeline;
    std::uint32_t threads = 0;  // workers; 0: one per usable CPU
    Limits limits;
    RetentionOptions keeping;
    AdminOptions admin;
    LogOptions log;
    bool trace = false;  // keep latency histograms, which SIGUSR1 prints
    std::string state;   // the folder of exports created at run time; empty: none

    bool any_swap() const {
        return std::any_of(exports.begin(), exports.end(),
                           [](const ExportOptions& each) { return each.swap; });
    }
    bool operator==(const Options&) const = default;
};

// An error in a configuration, with its remedy. `line` and `column` count from 1; 0: unknown.
struct Problem {
    std::string file;
    int line = 0;
    int column = 0;
    std::string key;   // "exports[1].page_size"
    std::string what;  // "2000 is not a power of two; use for example 2M"

    // "file:line:column: key: what", without empty parts.
    std::string text() const;
};

}  // namespace gpunbd::config
