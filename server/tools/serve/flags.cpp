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
          .manual = R"(Name under which clients open the export, at most 4096 bytes of UTF-8.
Default: the empty name, which is NBD's default export.)"},
         {.name = "--size",
          .takes = "SIZE",
          .example = "8G",
          .brief = "Size of the export",
          .more = ": a multiple of 512 bytes, or a share of its devices' memory such as 50% (for "
                  "the host: of the available memory); default 100%.",
          .called = "--memory --mem --capacity --length --vram",
          .key = "exports[].size",
          .manual =
              R"(Size of the export, a multiple of 512 bytes; or a share of its devices' usable memory, from 1% to
100%.
For the host this is a share of the memory that is available at the start.
Default: 100%.)"},
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
          .more =
              ": linear fills one device after the other, stripe uses all in turn; default linear.",
          .called = "--stripe --striped --raid --linear",
          .key = "exports[].layout",
          .manual = R"(Distribution over several devices: one after the other, or all in turn.
.Cm stripe
needs two devices or more.
Default:
.Cm linear .)"},
         {.name = "--stripe-size",
          .takes = "SIZE",
          .example = "4M",
          .brief = "Bytes per device before the next one is used",
          .more = ", a multiple of the page size; default one page. Needs --layout stripe.",
          .key = "exports[].stripe_size",
          .manual =
              R"(Bytes per device before the next one is used: a multiple of the page size, 64K to 1T.
Needs
.Fl -layout Cm stripe .
Default: one page.)"},
         {.name = "--provision",
          .takes = "KIND",
          .example = "full",
          .brief = "Time of allocation",
          .more = ": thin allocates on the first write, full at the start; default thin, full with "
                  "--swap.",
          .called = "--thin --full --preallocate --prealloc",
          .key = "exports[].provision",
          .manual = R"(Allocate memory on the first write, or all of it at the start.
Default: thin, or full where swap is true.)"},
         {.name = "--page-size",
          .takes = "SIZE",
          .example = "2M",
          .brief = "Unit of allocation",
          .key = "exports[].page_size",
          .manual =
              R"(The unit in which memory is allocated and freed: a power of two from 64K to 64M.
Default: 2M.)"},
         {.name = "--reserve",
          .takes = "SIZE",
          .example = "1G",
          .brief = "Memory of each --device that is left to other users",
          .more = "; default: the device's own. Needs --device.",
          .key = "devices[].reserve",
          .manual = R"(Memory of each
.Fl -device
that is left to other users of the device.
Needs
.Fl -device .
Default: the device's own.)"},
         {.name = "--read-only",
          .brief = "Refuse requests that change the export",
          .more = ".",
          .called = "--ro",
          .old = "--readonly",
          .key = "exports[].read_only",
          .manual = R"(Refuse requests that change the export.
The former name
.Ql --readonly
is still accepted.)"},
         {.name = "--keep",
          .brief = "Keep contents when the server ends",
          .more = "; requires a supervisor: systemd, or gpunbd keep.",
          .called = "--persist --persistent --preserve",
          .key = "exports[].keep",
          .manual = R"(The contents outlive the server.
This requires a supervisor:
.Nm Cm keep ,
or systemd with
.Ql FileDescriptorStoreMax= .
Without one the contents end with the server, and a log line reports this.)"},
         {.name = "--swap",
          .brief = "The machine of the server may use the export as swap",
          .more = ": memory is locked and threads run in real time; a protection that is not "
                  "available is an error; SIGTERM waits for swapoff.",
          .called = "--mlock --mlockall --lock --realtime --protect",
          .key = "exports[].swap",
          .manual = R"(The machine of the server may use the export as swap; see
.Sx SWAP .
Excludes TLS and
.Fl -run .)"},
         {.name = "--block-size",
          .takes = "SIZE",
          .example = "4K",
          .brief = "Alignment of offsets and lengths",
          .called = "--blocksize --block --sector-size --sector --blocksize-minimum",
          .key = "exports[].block_size.minimum",
          .manual =
              R"(Alignment of offsets, lengths and the size: a power of two from 1 to 64K.
It is reported to clients, and requests that are not aligned are refused.
Default: 1.)"},
         {.name = "--config",
          .takes = file_argument,
          .example = "/etc/gpunbd.yaml",
          .brief = "Read exports and listeners from a YAML file",
          .more = ", see gpunbd.yaml(5). Excludes the flags above and those under Listeners but "
                  "--insecure, --keeping-socket, --admin, --admin-socket, --admin-token and "
                  "--run.",
          .called = "--file --yaml --conf --configuration",
          .with_file = true,
          .manual = R"(Read exports and listeners from
.Ar file ,
see
.Xr gpunbd.yaml 5 .
Excludes the flags above and those under
.Sx Listeners
other than
.Fl -insecure ,
.Fl -keeping-socket ,
.Fl -admin ,
.Fl -admin-socket ,
.Fl -admin-token
and
.Fl -run .
The flags under
.Sx TLS ,
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
          .key = "listeners.tcp[].port",
          .manual = R"(TCP port, 1 to 65535.
Default: 10809.)"},
         {.name = "--bind",
          .letter = "-b",
          .takes = "ADDRESS",
          .example = "127.0.0.1",
          .brief = "Numeric IPv4 or IPv6 address to listen on",
          .more =
              ", repeatable; default 127.0.0.1 and ::1. 0.0.0.0 and :: stand for every interface.",
          .called = "--listen --address --addr --ip --ipaddr --interface --ip-addr",
          .key = "listeners.tcp[].address",
          .repeats = true,
          .manual =
              R"(Numeric IPv4 or IPv6 address to listen on; 0.0.0.0 and :: stand for every interface.
Repeatable.
Default: 127.0.0.1 and ::1.)"},
         {.name = "--unix",
          .letter = "-U",
          .takes = "PATH",
          .example = "/run/gpunbd.sock",
          .brief = "Unix socket to listen on",
          .more = ", repeatable. Disables TCP unless -p or -b is given.",
          .called = "--socket --sock --unix-socket",
          .key = "listeners.unix[].path",
          .repeats = true,
          .manual = R"(Unix socket to listen on, at most 107 bytes, with mode 0600.
Repeatable.
It disables TCP unless
.Fl p
or
.Fl b
is given.)"},
         {.name = "--vsock",
          .takes = "PORT",
          .example = "10809",
          .brief = "Vsock port to listen on, for virtual machines or their host",
          .more = ", repeatable. CID:PORT: only for this context id. Disables TCP unless -p or -b "
                  "is given.",
          .called = "--vm --vsock-port --af-vsock",
          .repeats = true,
          .manual =
              R"(Vsock port to listen on, from 1 to 4294967294, for virtual machines or, in a virtual machine, for its host.
In
.Ar cid : Ns Ar port ,
.Ar cid
is the context id of this machine, or
.Cm any .
Clients connect by
.Li nbd+vsock:// Ns Ar cid : Ns Ar port Ns / .
Repeatable.
It disables TCP unless
.Fl p
or
.Fl b
is given.
Default:
.Cm any .)"},
         {.name = "--insecure",
          .brief = "Allow unprotected listeners that other machines can reach",
          .more = ": without TLS or access lists, every client that can reach the address has full "
                  "access.",
          .called = "--allow-insecure --unsafe --no-tls",
          .key = "insecure",
          .with_file = true,
          .manual =
              R"(Allow listeners that other machines can reach without TLS and without an access list for each export in the
configuration file.
Every client that can reach the address has full access, and the traffic can be read on the network.
Without this flag the server does not start with such a listener.)"},
         {.name = "--keeping-socket",
          .takes = "PATH",
          .example = "/run/gpunbd/keeping.sock",
          .brief = "Additional Unix socket for 'gpunbd kept'",
          .more = "; default none. Use it if --admin-socket is none.",
          .called = "--kept-socket --control-socket",
          .key = "keeping.socket",
          .with_file = true,
          .manual = R"(Additional Unix socket for
.Nm Cm kept ,
for servers without an admin socket.
It has mode 0600 and serves only the server's user and root.
Default: none.)"},
         {.name = "--admin-socket",
          .takes = "PATH",
          .example = "/run/gpunbd/admin.sock",
          .brief = "Unix socket of the admin endpoint, or none",
          .more = ": HTTP with status, metrics, a page and an API; default admin-PID.sock in "
                  "$RUNTIME_DIRECTORY, or a folder of this user.",
          .called = "--http-socket --status-socket",
          .key = "admin.socket",
          .with_file = true,
          .manual = R"(Unix socket of the admin endpoint, or
.Cm none :
HTTP with a page, metrics for Prometheus, and an API to read and change the state; see
.Xr gpunbd.yaml 5 .
It has mode 0600.
Default:
.Pa admin-PID.sock
in
.Ev RUNTIME_DIRECTORY ,
which systemd and the container image set.
Without this variable it is in the first of these folders that exists or can be created, and is writable only for this
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
          .with_file = true,
          .manual = R"(TCP address of the admin endpoint; the default port is 9809.
Without a token or TLS
.Pq Va admin.tcp.tls
the endpoint is read-only and must be a loopback address.)"},
         {.name = "--admin-token",
          .takes = file_argument,
          .example = "/etc/gpunbd/admin.token",
          .brief = "File with the secret that clients of --admin must present",
          .more = ", as Authorization: Bearer; only its owner and group may read it.",
          .called = "--token --bearer --api-key",
          .key = "admin.tcp.token",
          .with_file = true,
          .manual = R"(A file with the secret that clients of
.Fl -admin
must present.)"},
         {.name = "--run",
          .takes = "COMMAND",
          .example = "'nbdinfo \"$uri\"'",
          .brief = "Run a command on a private server",
          .more = ": serve on a private Unix socket only, run COMMAND in a shell with $uri and "
                  "$unixsocket set, and exit with its status.",
          .called = "--exec --command",
          .with_file = true,
          .manual = R"(Open no listener but a private Unix socket, run
.Ar command
in a shell with
.Ev uri
and
.Ev unixsocket
set, and exit with its status.
A signal that ends the server is sent to all processes of
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
              .more = ": off, optional or required; default: required with one of the two flags "
                      "below, else off. off requires --config, and excludes those two.",
              .called = "--ssl --starttls --tls-mode",
              .key = "tls.mode",
              .with_file = true,
              .manual = R"(Availability of TLS.
Default: required where certificates or psk are given, else off.
.Cm off
requires
.Fl -config
and excludes the flags below.)"},
             {.name = "--tls-certificates",
              .takes = "DIR",
              .example = "/etc/gpunbd/tls",
              .brief = "Folder with server-cert.pem, server-key.pem and ca-cert.pem",
              .more = ".",
              .called = "--tls-creds --cert --certificate --certfile --certs --tls-cert --key",
              .key = "tls.certificates",
              .with_file = true,
              .manual = R"(Folder with
.Pa server-cert.pem , server-key.pem
and
.Pa ca-cert.pem .)"},
             {.name = "--tls-verify-clients",
              .takes = "BOOLEAN",
              .example = "false",
              .brief = "Require a client certificate signed by ca-cert.pem",
              .more = ": true or false; default true.",
              .words = {"true", "false"},
              .called = "--tls-verify-peer --tls-verify --verify-peer --verify",
              .key = "tls.verify_clients",
              .with_file = true,
              .manual = R"(Require a client certificate signed by
.Pa ca-cert.pem
unless the client uses a shared key:
.Cm true
or
.Cm false .
Default:
.Cm true .)"},
             {.name = "--tls-psk",
              .takes = file_argument,
              .example = "/etc/gpunbd/keys.psk",
              .brief = "File with keys shared with clients",
              .more = ", a line user:hexkey for each.",
              .called = "--psk --keys",
              .key = "tls.psk",
              .with_file = true,
              .manual = R"(File with keys shared with clients, a line
.Ar user : Ns Ar hexkey
for each.
.Pp
.Xr gpunbd.yaml 5 ,
.Sx TLS ,
describes the files and their permissions.)"}}};
}

FlagGroup process_flags() {
    return {
        "Process",
        {{.name = "--pidfile",
          .takes = file_argument,
          .example = "/run/gpunbd.pid",
          .brief = "Write the process id once clients can connect",
          .more = "; the file is removed when the server ends.",
          .called = "--pid --pid-file",
          .with_file = true,
          .manual = R"(Write the server's process id to
.Ar file
once clients can connect, and remove the file when the server ends.)"},
         {.name = "--background",
          .brief = "Return once clients can connect",
          .more = ", or with the status of a failed start. The server continues in the "
                  "background, and its log still goes to standard error.",
          .called = "--fork --daemon --daemonize --detach -d",
          .with_file = true,
          .manual =
              R"(Return with status 0 once clients can connect, or with the status of a failed start.
The server continues in the background.
It leaves the session and closes standard input and output.
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
          .with_file = true,
          .manual = R"(End the server when its parent process ends, as with
.Dv SIGTERM .)"},
         {.name = "--core-dumps",
          .brief = "Include exported memory in core dumps",
          .more = ", which then contain client data; default: left out.",
          .called = "--core --coredump --dump",
          .with_file = true,
          .manual = R"(Include exported memory in core dumps, as configured by the system.
By default core dumps contain no memory, because memory holds client data.
The command of
.Fl -run
inherits the setting.)"}}};
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
          .with_file = true,
          .manual = R"(Worker threads, 0 to 1024.
Default: 0, one per core.)"},
         {.name = "--chunk-size",
          .takes = "SIZE",
          .example = "1M",
          .brief = "Bytes per copy of the pinned pipeline",
          .key = "pipeline.chunk_size",
          .with_file = true,
          .manual =
              R"(Bytes per copy of the pinned pipeline, which moves data to and from a GPU whose memory the CPU cannot
address: a power of two from 64K to 16M.
Default: calibrated at start.)"},
         {.name = "--slots",
          .takes = "N",
          .example = "2",
          .brief = "Chunks in flight per transfer and device",
          .key = "pipeline.slots",
          .with_file = true,
          .manual = R"(Chunks of one transfer in flight on each device of a stripe, 1 to 8.
Default: 2.)"}}};
}

FlagGroup log_flags() {
    return {"Log",
            {{.name = "--log-level",
              .takes = "LEVEL",
              .example = "debug",
              .brief = "Minimum level of log lines",
              .called = "--verbose --debug --quiet --level -v -q",
              .key = "log.level",
              .with_file = true,
              .manual = R"(Minimum level of log lines.
Default:
.Cm info .)"},
             {.name = "--log-format",
              .takes = "KIND",
              .example = "json",
              .brief = "Format of log lines",
              .called = "--json --format",
              .key = "log.format",
              .with_file = true,
              .manual = R"(Default:
.Cm text .)"},
             {.name = "--trace",
              .brief = "Record latency histograms",
              .more = "; SIGUSR1 prints them.",
              .called = "--stats --metrics --histogram",
              .key = "trace",
              .with_file = true,
              .manual = R"(Record latency histograms, which
.Dv SIGUSR1
prints.)"}}};
}

}  // namespace

std::vector<FlagGroup> serve_flags() {
    FlagGroup of_export = export_flags();
    const std::vector<Flag> of_drivers = driver_flags();
    const auto place = std::ranges::find(of_export.flags, "--read-only", &Flag::name);
    of_export.flags.insert(place, of_drivers.begin(), of_drivers.end());
    return {described(std::move(of_export)),
            described(listener_flags()),
            described(tls_flags()),
            process_flags(),
            described(data_path_flags()),
            described(log_flags()),
            {"", {}}};
}

}  // namespace gpunbd::tools
