#include "server/tools/serve/flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "config/devices/device_drivers.hpp"
#include "config/schema.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;

// Adds to each flag the description of the key that it sets.
FlagGroup described(FlagGroup group) {
    for (Flag& flag : group.flags) {
        if (flag.key.empty()) continue;
        const KeyText& key = key_text(flag.key);
        if (flag.words.empty()) flag.words = key.words;
        if (flag.more.empty()) flag.more = key.range + "; d" + key.fallback.substr(1) + '.';
    }
    return group;
}

std::vector<std::string_view> device_words() {
    std::vector<std::string_view> out{"auto"};
    for (const DriverInfo& driver : device_drivers()) {
        if (driver.completed) out.push_back(driver.form);
    }
    return out;
}

// The names of --device in other programs.
std::string device_flags_elsewhere() {
    std::string out = "--devices";
    for (const DriverInfo& driver : device_drivers()) out += fmt::format(" {}", driver.called);
    return out;
}

// The flags for settings of the devices of one driver.
std::vector<Flag> driver_flags() {
    std::vector<Flag> out;
    for (const DriverInfo& driver : device_drivers()) {
        for (const DriverInfo::Setting& setting : driver.settings) {
            if (setting.flag.empty()) continue;
            out.push_back({.name = setting.flag,
                           .brief = setting.summary,
                           .more = fmt::format(". Needs --device {}.", driver.form),
                           .called = std::string(setting.called),
                           .key = fmt::format("devices[].{}", setting.key)});
        }
    }
    return out;
}

FlagGroup export_flags() {
    return {
        "Export",
        {{.name = "--name",
          .takes = "NAME",
          .example = "fast",
          .brief = "Name under which clients open the export",
          .more = "; default: the empty name, NBD's default export.",
          .called = "--export --export-name --exportname",
          .key = "exports[].name",
          .details = R"(At most 4096 bytes of UTF-8.)"},
         {.name = "--size",
          .takes = "SIZE",
          .example = "8G",
          .brief = "Size of the export",
          .more = ": a multiple of 512 bytes, or a share of its devices' memory such as 50% (for "
                  "the host: of the available memory); default 100%.",
          .called = "--memory --mem --capacity --length --vram",
          .key = "exports[].size"},
         {.name = "--device",
          .takes = "ID",
          .example = example_device(),
          .brief = "Device whose memory the export uses",
          .more = fmt::format(": {}, or auto (the first GPU, else the host); default auto. Repeat "
                              "it, with each device once, to spread the export over several "
                              "devices.",
                              device_forms()),
          .words = device_words(),
          .called = device_flags_elsewhere(),
          .key = "exports[].devices",
          .repeats = true},
         {.name = "--layout",
          .takes = "KIND",
          .example = "stripe",
          .brief = "Distribution over several devices",
          .more = ": linear fills one device after the other, stripe uses all of two or more in "
                  "turn; default: linear.",
          .called = "--stripe --striped --raid --linear",
          .key = "exports[].layout"},
         {.name = "--stripe-size",
          .takes = "SIZE",
          .example = "4M",
          .brief = "Bytes per device before the next one is used",
          .more = ", a multiple of the page size from 64K to 1T; default: one page. Needs --layout "
                  "stripe.",
          .key = "exports[].stripe_size"},
         {.name = "--provision",
          .takes = "KIND",
          .example = "full",
          .brief = "Time of allocation",
          .more = ": thin allocates on the first write, full at the start; default: thin, or full "
                  "where swap is true.",
          .called = "--thin --full --preallocate --prealloc",
          .key = "exports[].provision"},
         {.name = "--page-size",
          .takes = "SIZE",
          .example = "2M",
          .brief = "Unit in which memory is allocated and freed",
          .key = "exports[].page_size"},
         {.name = "--reserve",
          .takes = "SIZE",
          .example = "1G",
          .brief = "Memory of each --device that is left to other users",
          .more = "; default: the device's own. Needs --device.",
          .key = "devices[].reserve"},
         {.name = "--spill",
          .takes = "PLACE=SIZE",
          .example = "host=64G",
          .brief = "Place for pages of each --device when it has to give memory back",
          .more = ": the id of another device or the absolute path of a file, and its size, as in "
                  "host=64G or /var/lib/gpunbd/spill=200G; repeatable, in the order of their use. "
                  "Needs --device.",
          .called = "--overflow --swap-file --evict-to --fallback",
          .repeats = true,
          .details = R"(As
.Va spill
in
.Xr gpunbd.yaml 5 ;
files are encrypted.)"},
         {.name = "--read-only",
          .brief = "Refuse requests that change the export",
          .more = ".",
          .called = "--ro",
          .old = "--readonly",
          .key = "exports[].read_only",
          .details = R"(The former name
.Ql --readonly
is still accepted.)"},
         {.name = "--keep",
          .brief = "Keep contents when the server ends",
          .more = "; requires a supervisor: systemd, or gpunbd keep.",
          .called = "--persist --persistent --preserve",
          .key = "exports[].keep",
          .details = R"(With systemd this is
.Ql FileDescriptorStoreMax= .
Without a supervisor the contents end with the server, and a log line reports this.)"},
         {.name = "--swap",
          .brief = "The machine of the server may use the export as swap",
          .more = ": memory is locked and threads run in real time; a protection that is not "
                  "available is an error; SIGTERM waits for swapoff.",
          .called = "--mlock --mlockall --lock --realtime --protect",
          .key = "exports[].swap",
          .details = R"(See
.Sx SWAP .
Excludes TLS and
.Fl -run .)"},
         {.name = "--ublk",
          .brief = "Make the block device /dev/ublkbN of this machine",
          .more = "; needs root and Linux 6.5.",
          .called = "--block-device --blockdev --local",
          .key = "exports[].ublk",
          .details = R"(See
.Sx LOCAL BLOCK DEVICES .)"},
         {.name = "--block-size",
          .takes = "SIZE",
          .example = "4K",
          .brief = "Alignment of offsets and lengths",
          .called = "--blocksize --block --sector-size --sector --blocksize-minimum",
          .key = "exports[].block_size.minimum",
          .details = R"(The size of the export must be a multiple of it.
It is reported to clients, and requests that are not aligned are refused.)"},
         {.name = "--config",
          .takes = file_argument,
          .example = "/etc/gpunbd/gpunbd.yaml",
          .brief = "Read exports and listeners from a YAML file",
          .more = ", see gpunbd.yaml(5). Excludes the flags above and those under Listeners but "
                  "--insecure, --keeping-socket, --admin, --admin-socket, --admin-token and "
                  "--run.",
          .called = "--file --yaml --conf --configuration",
          .why_not = "the file contains exports and listeners",
          .with_file = true,
          .details = R"(The flags under
.Sx TLS ,
.Sx State ,
.Sx Data path
and
.Sx Log
override the file, also after a reload.
Those under
.Sx Process
have no keys in the file.)"}}};
}

FlagGroup listener_flags() {
    return {
        "Listeners",
        {{.name = "--port",
          .letter = "-p",
          .takes = "PORT",
          .example = "10809",
          .brief = "TCP port",
          .key = "listeners.tcp[].port"},
         {.name = "--bind",
          .letter = "-b",
          .takes = "ADDRESS",
          .example = "127.0.0.1",
          .brief = "Numeric IPv4 or IPv6 address to listen on",
          .more =
              ", repeatable; default 127.0.0.1 and ::1. 0.0.0.0 stands for every IPv4 address, :: "
              "for every IPv6 address. A link-local address needs its interface: fe80::1%eth0.",
          .called = "--listen --address --addr --ip --ipaddr --interface --ip-addr",
          .key = "listeners.tcp[].address",
          .repeats = true},
         {.name = "--unix",
          .letter = "-U",
          .takes = "PATH",
          .example = "/run/gpunbd.sock",
          .brief = "Unix socket to listen on",
          .more = ", repeatable. Disables TCP unless -p or -b is given.",
          .called = "--socket --sock --unix-socket",
          .key = "listeners.unix[].path",
          .repeats = true,
          .details = R"(The path has at most 107 bytes, and the socket has mode 0600.)"},
         {.name = "--vsock",
          .takes = "PORT",
          .example = "10809",
          .brief = "Vsock port to listen on, for virtual machines or their host",
          .more = ", repeatable. CID:PORT: only for this context id. Disables TCP unless -p or -b "
                  "is given.",
          .called = "--vm --vsock-port --af-vsock",
          .repeats = true,
          .details = R"(The port is 1 to 4294967294, and the context id that of this machine, or
.Cm any ,
the default.
Clients connect by
.Li nbd+vsock:// Ns Ar cid : Ns Ar port Ns / .)"},
         {.name = "--insecure",
          .brief = "Allow unprotected listeners that other machines can reach",
          .more = ": without TLS or access lists, every client that can reach the address has full "
                  "access.",
          .called = "--allow-insecure --unsafe --no-tls",
          .key = "insecure",
          .with_file = true,
          .details = R"(The traffic can be read on the network.
Without this flag the server does not start with a listener that other machines can reach without TLS and without an
access list for each export in the configuration file.)"},
         {.name = "--keeping-socket",
          .takes = "PATH",
          .example = "/run/gpunbd/keeping.sock",
          .brief = "Additional Unix socket for 'gpunbd kept'",
          .more = "; default none. Use it if --admin-socket is none.",
          .called = "--kept-socket --control-socket",
          .key = "keeping.socket",
          .with_file = true,
          .details = R"(It has mode 0600 and serves only the server's user and root.)"},
         {.name = "--admin-socket",
          .takes = "PATH",
          .example = "/run/gpunbd/admin.sock",
          .brief = "Unix socket of the admin endpoint, or none",
          .more = ": HTTP with status, metrics, a page and an API; default admin-PID.sock in "
                  "$RUNTIME_DIRECTORY, or a folder of this user.",
          .called = "--http-socket --status-socket",
          .key = "admin.socket",
          .with_file = true,
          .details = R"(It has mode 0600.
systemd and the container image set
.Ev RUNTIME_DIRECTORY .
Without this variable the socket is in the first of these folders that exists or can be created, and is writable only for this
user and root: for root
.Pa /run/gpunbd ,
.Pa /run/gpunbd-root
and
.Pa /tmp/gpunbd-0 ;
for other users
.Pa $XDG_RUNTIME_DIR/gpunbd
and
.Pa /tmp/gpunbd- Ns Ar UID .)"},
         {.name = "--admin",
          .takes = "ADDRESS:PORT",
          .example = "127.0.0.1:9809",
          .brief = "TCP address of the admin endpoint",
          .more = "; default port 9809. Without a token or TLS it is read-only and must be a "
                  "loopback address.",
          .called = "--http --metrics --prometheus --web --listen-http",
          .with_file = true},
         {.name = "--admin-token",
          .takes = file_argument,
          .example = "/etc/gpunbd/admin.token",
          .brief = "File with the secret that clients of --admin must present",
          .more = ", as Authorization: Bearer; only its owner and group may read it.",
          .called = "--token --bearer --api-key",
          .key = "admin.tcp.token",
          .with_file = true},
         {.name = "--run",
          .takes = "COMMAND",
          .example = "'nbdinfo \"$uri\"'",
          .brief = "Run a command on a private server",
          .more = ": serve on a private Unix socket only, run COMMAND in a shell with $uri and "
                  "$unixsocket set, and exit with its status.",
          .called = "--exec --command",
          .excludes = {"--port", "--bind", "--unix", "--vsock"},
          .why_not = "--run serves on a private Unix socket",
          .with_file = true,
          .details = R"(A signal that ends the server is sent to all processes of
.Ar command .
Processes that still run after the grace period are killed.
If the server itself is killed,
.Ar command
is terminated and the socket is removed as well.
Excludes
.Fl p ,
.Fl b ,
.Fl U
and
.Fl -vsock ;
the listeners of a configuration file are not opened.)"}}};
}

FlagGroup tls_flags() {
    return {"TLS",
            {{.name = "--tls",
              .takes = "MODE",
              .example = "required",
              .brief = "Availability of TLS",
              .more = ": off, optional or required; default: required where certificates or psk "
                      "are given, else off. off requires --config, and excludes the flags below.",
              .called = "--ssl --starttls --tls-mode",
              .key = "tls.mode",
              .with_file = true},
             {.name = "--tls-certificates",
              .takes = "DIR",
              .example = "/etc/gpunbd/tls",
              .brief = "Folder with server-cert.pem, server-key.pem and ca-cert.pem",
              .more = ".",
              .called = "--tls-creds --cert --certificate --certfile --certs --tls-cert --key",
              .key = "tls.certificates",
              .with_file = true},
             {.name = "--tls-verify-clients",
              .takes = "BOOLEAN",
              .example = "false",
              .brief = "Require a client certificate signed by ca-cert.pem",
              .more = ": true or false; default true.",
              .words = {"true", "false"},
              .called = "--tls-verify-peer --tls-verify --verify-peer --verify",
              .key = "tls.verify_clients",
              .with_file = true,
              .details = R"(Clients that use a shared key need no certificate.)"},
             {.name = "--tls-psk",
              .takes = file_argument,
              .example = "/etc/gpunbd/keys.psk",
              .brief = "File with keys shared with clients",
              .more = ", a line user:hexkey for each.",
              .called = "--psk --keys",
              .key = "tls.psk",
              .with_file = true,
              .details = R"(.Xr gpunbd.yaml 5 ,
.Sx TLS ,
describes the files and their permissions.)"}}};
}

FlagGroup process_flags() {
    return {"Process",
            {{.name = "--pidfile",
              .takes = file_argument,
              .example = "/run/gpunbd.pid",
              .brief = "Write the process id once clients can connect",
              .more = "; the file is removed when the server ends.",
              .called = "--pid --pid-file",
              .with_file = true},
             {.name = "--background",
              .brief = "Return once clients can connect",
              .more = ", or with the status of a failed start. The server continues in the "
                      "background, and its log still goes to standard error.",
              .called = "--fork --daemon --daemonize --detach -d",
              .excludes = {"--exit-with-parent", "--run"},
              .why_not = "--background returns, and the other one ends the server",
              .with_file = true,
              .details = R"(It leaves the session and closes standard input and output.
Its log still goes to standard error: redirect that to a file, for instance with
.Ql 2>>gpunbd.log ,
if the terminal will be closed or the output of the command is captured.
.Fl -pidfile
has the id of the process that stays.
Excludes
.Fl -run
and
.Fl -exit-with-parent ;
for a server under
.Nm Cm keep ,
it is a flag of
.Cm keep .
It is refused under a supervisor, which sets
.Ev NOTIFY_SOCKET
or
.Ev LISTEN_FDS .)"},
             {.name = "--exit-with-parent",
              .brief = "End the server when its parent process ends",
              .more = ", as with SIGTERM.",
              .called = "--exit --die-with-parent",
              .with_file = true},
             {.name = "--core-dumps",
              .brief = "Include exported memory in core dumps",
              .more = ", which then contain client data; default: left out.",
              .called = "--core --coredump --dump",
              .with_file = true,
              .details = R"(The command of
.Fl -run
inherits the setting.)"}}};
}

FlagGroup state_flags() {
    return {"State",
            {{.name = "--state",
              .takes = folder_argument,
              .example = "/var/lib/gpunbd",
              .brief = "Folder of the exports that 'gpunbd export create --persist' creates",
              .more = "; default: none. They are created again at each start.",
              .called = "--state-dir --statedir --database",
              .key = "state",
              .with_file = true,
              .details = R"(It is created if it is missing.
Only its owner may have permission to write to it.)"}}};
}

FlagGroup data_path_flags() {
    return {
        "Data path",
        {{.name = "--threads",
          .takes = "N",
          .example = "4",
          .brief = "Worker threads",
          .called = "--jobs --workers --cores --cpus",
          .key = "threads",
          .with_file = true},
         {.name = "--chunk-size",
          .takes = "SIZE",
          .example = "1M",
          .brief = "Bytes per copy of the pinned pipeline",
          .key = "pipeline.chunk_size",
          .with_file = true,
          .details =
              R"(The pipeline moves data to and from a GPU with memory that the CPU cannot address.)"},
         {.name = "--slots",
          .takes = "N",
          .example = "2",
          .brief = "Chunks in flight per transfer and device",
          .key = "pipeline.slots",
          .with_file = true}}};
}

FlagGroup log_flags() {
    return {"Log",
            {{.name = "--log-level",
              .takes = "LEVEL",
              .example = "debug",
              .brief = "Minimum level of log lines",
              .called = "--verbose --debug --quiet --level -v -q",
              .key = "log.level",
              .with_file = true},
             {.name = "--log-format",
              .takes = "KIND",
              .example = "json",
              .brief = "Format of log lines",
              .called = "--json --format",
              .key = "log.format",
              .with_file = true},
             {.name = "--trace",
              .brief = "Record latency histograms",
              .more = "; SIGUSR1 prints them.",
              .called = "--stats --metrics --histogram",
              .key = "trace",
              .with_file = true}}};
}

}  // namespace

std::vector<FlagGroup> serve_flags() {
    FlagGroup of_export = export_flags();
    const std::vector<Flag> of_drivers = driver_flags();
    const auto place = std::ranges::find(of_export.flags, "--read-only", &Flag::name);
    of_export.flags.insert(place, of_drivers.begin(), of_drivers.end());
    std::vector<FlagGroup> out{described(std::move(of_export)), described(listener_flags()),
                               described(tls_flags()),          process_flags(),
                               described(state_flags()),        described(data_path_flags()),
                               described(log_flags()),          {"", {}}};
    auto& beside_file = std::ranges::find(out[0].flags, "--config", &Flag::name)->excludes;
    for (const FlagGroup& group : out) {
        for (const Flag& flag : group.flags) {
            if (!flag.with_file) beside_file.push_back(flag.name);
        }
    }
    return out;
}

}  // namespace gpunbd::tools
