#include "server/tools/serve/flags.hpp"

#include <fmt/format.h>

#include <string_view>

#include "config/device_drivers.hpp"
#include "config/schema.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;

// Completes flags by the description of the keys that they set.
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

FlagGroup export_flags() {
    return {
        "Export",
        {{.name = "--name",
          .takes = "NAME",
          .example = "fast",
          .brief = "Name that clients ask for",
          .more = "; default: the empty name, NBD's default export.",
          .called = "--export --export-name --exportname",
          .key = "exports[].name",
          .manual = R"(Name that clients ask for, at most 4096 bytes of UTF-8.
Default: the empty name, which is NBD's default export.)"},
         {.name = "--size",
          .takes = "SIZE",
          .example = "8G",
          .brief = "Size of the export",
          .more = ": a multiple of 512 bytes, or a share of its devices' memory such as 50% (of "
                  "the host: of the memory available); default 100%.",
          .called = "--memory --mem --capacity --length --vram",
          .key = "exports[].size",
          .manual =
              R"(Size of the export, a multiple of 512 bytes; or a share of its devices' usable memory, from 1% to
100%.
Of the host that is a share of the memory that is available at start.
Default: 100%.)"},
         {.name = "--device",
          .takes = "ID",
          .example = example_device(),
          .brief = "Where the memory comes from",
          .more = fmt::format(": {}, or auto (the first GPU, else the host); default auto. Repeat "
                              "it to spread the export over several devices.",
                              device_forms()),
          .words = device_words(),
          .called = "--gpu --gpus --cuda --card --devices --pci --bar",
          .key = "exports[].devices",
          .repeats = true,
          .manual = R"(Where the memory comes from:
.Cm host ,
.Cm cuda: Ns Ar N ,
.Cm pci: Ns Ar address Ns / Ns Ar BAR ,
which is memory of a PCI card (see
.Xr gpunbd.yaml 5 ) ,
or
.Cm auto ,
which is the first GPU and, without one, the host.
Repeatable, each device once, to spread the export over several.
Default:
.Cm auto .)"},
         {.name = "--layout",
          .takes = "KIND",
          .example = "stripe",
          .brief = "How several devices are filled",
          .more = ": linear, one after the other, or stripe, all in turn; default linear.",
          .called = "--stripe --striped --raid --linear",
          .key = "exports[].layout",
          .manual = R"(How several devices are filled: one after the other, or all in turn.
.Cm stripe
needs two devices or more.
Default:
.Cm linear .)"},
         {.name = "--stripe-size",
          .takes = "SIZE",
          .example = "4M",
          .brief = "Bytes on one device before the next one's turn",
          .more = ", a multiple of the page size; default one page. Needs --layout stripe.",
          .key = "exports[].stripe_size",
          .manual =
              R"(Bytes on one device before the next one's turn: a multiple of the page size, 64K to 1T.
Needs
.Fl -layout Cm stripe .
Default: one page.)"},
         {.name = "--provision",
          .takes = "KIND",
          .example = "full",
          .brief = "When memory is taken",
          .more = ": thin, when it is first written, or full, all of it at start; default thin, "
                  "full with --swap.",
          .called = "--thin --full --preallocate --prealloc",
          .key = "exports[].provision",
          .manual = R"(Take memory when it is first written, or all of it at start.
Default: thin, or full where swap is true.)"},
         {.name = "--page-size",
          .takes = "SIZE",
          .example = "2M",
          .brief = "Unit of allocation",
          .key = "exports[].page_size",
          .manual =
              R"(The unit in which memory is allocated and given back: a power of two from 64K to 64M.
Default: 2M.)"},
         {.name = "--reserve",
          .takes = "SIZE",
          .example = "1G",
          .brief = "Memory of each --device that is never taken",
          .more = "; default: the device's own. Needs --device.",
          .key = "devices[].reserve",
          .manual = R"(Memory of each
.Fl -device
that is never taken, for the device's other users.
Needs
.Fl -device .
Default: the device's own.)"},
         {.name = "--force-pci",
          .brief = "Serve memory of a PCI card that a driver has, or that is a display",
          .more = ". Needs --device pci:ADDRESS/BAR.",
          .called = "--force",
          .key = "devices[].force",
          .manual = R"(Serve memory of a PCI card though a driver has it, or though it is a display.
Needs
.Fl -device Cm pci: Ns Ar address Ns / Ns Ar BAR .)"},
         {.name = "--read-only",
          .brief = "Refuse what would change the export",
          .more = ".",
          .called = "--ro",
          .old = "--readonly",
          .key = "exports[].read_only",
          .manual = R"(Refuse what would change the export.
The former name,
.Ql --readonly ,
is still taken.)"},
         {.name = "--keep",
          .brief = "Contents outlive the server",
          .more = ", where a supervisor keeps them: systemd, or gpunbd keep.",
          .called = "--persist --persistent --preserve",
          .key = "exports[].keep",
          .manual = R"(The contents outlive the server, where a supervisor keeps them:
.Nm Cm keep ,
or systemd with
.Ql FileDescriptorStoreMax= .
Without one they end with the server, which says so.)"},
         {.name = "--swap",
          .brief = "The machine that serves it may swap to it",
          .more = ": memory is locked, threads run in real time, and what of that cannot be had is "
                  "an error; SIGTERM waits for swapoff.",
          .called = "--mlock --mlockall --lock --realtime --protect",
          .key = "exports[].swap",
          .manual = R"(The machine that serves the export may swap to it; see
.Sx SWAP .
Excludes TLS and
.Fl -run .)"},
         {.name = "--block-size",
          .takes = "SIZE",
          .example = "4K",
          .brief = "What every offset and length has to be a multiple of",
          .called = "--blocksize --block --sector-size --sector --blocksize-minimum",
          .key = "exports[].block_size.minimum",
          .manual =
              R"(What every offset and length, and the size, have to be a multiple of: a power of two from 1 to 64K.
Clients are told, and requests that do not fit are refused.
Default: 1.
With
.Cm attach :
the device's sector, 512, 1K, 2K or 4K; default: the least that the server takes.)"},
         {.name = "--config",
          .takes = file_argument,
          .example = "/etc/gpunbd.yaml",
          .brief = "Take exports and listeners from a YAML file",
          .more = ", see gpunbd.yaml(5). Excludes the flags above and those under Listeners but "
                  "--insecure, --keeping-socket, --admin, --admin-socket, --admin-token and "
                  "--run.",
          .called = "--file --yaml --conf --configuration",
          .with_file = true,
          .manual = R"(Take exports and listeners from
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
win over what the file says, also after a reload; those under
.Sx Process
are not for files.)"}}};
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
          .more = ", repeatable; default 127.0.0.1 and ::1. 0.0.0.0 or :: is every interface.",
          .called = "--listen --address --addr --ip --ipaddr --interface --ip-addr",
          .key = "listeners.tcp[].address",
          .repeats = true,
          .manual =
              R"(Numeric IPv4 or IPv6 address to listen on; 0.0.0.0 and :: are every interface.
Repeatable.
Default: 127.0.0.1 and ::1.)"},
         {.name = "--unix",
          .letter = "-U",
          .takes = "PATH",
          .example = "/run/gpunbd.sock",
          .brief = "Unix socket to listen on",
          .more = ", repeatable. Without -p and -b: no TCP then.",
          .called = "--socket --sock --unix-socket",
          .key = "listeners.unix[].path",
          .repeats = true,
          .manual = R"(Unix socket to listen on, at most 107 bytes, with mode 0600.
Repeatable.
Without
.Fl p
and
.Fl b
there is no TCP listener then.)"},
         {.name = "--vsock",
          .takes = "PORT",
          .example = "10809",
          .brief = "Vsock port to listen on, for virtual machines or their host",
          .more = ", repeatable. CID:PORT: only as this context id. Without -p and -b: no TCP "
                  "then.",
          .called = "--vm --vsock-port --af-vsock",
          .repeats = true,
          .manual =
              R"(Vsock port to listen on, from 1 to 4294967294, for virtual machines or, in one, for its host.
In
.Ar cid : Ns Ar port ,
.Ar cid
is the context id of this machine, or
.Cm any .
Clients connect by
.Li nbd+vsock:// Ns Ar cid : Ns Ar port Ns / .
Repeatable.
Without
.Fl p
and
.Fl b
there is no TCP listener then.
Default:
.Cm any .)"},
         {.name = "--insecure",
          .brief = "Listen where other machines can reach it, unprotected",
          .more = ": without TLS and without lists of who may open what, whoever reaches the "
                  "address may read and change everything.",
          .called = "--allow-insecure --unsafe --no-tls",
          .key = "insecure",
          .with_file = true,
          .manual =
              R"(Listen on addresses that other machines can reach, though there is neither TLS nor, in a configuration
file, a list of who may open each export: whoever reaches the address may read and change everything,
and others on the way can read along.
Without it the server does not start there.)"},
         {.name = "--keeping-socket",
          .takes = "PATH",
          .example = "/run/gpunbd/keeping.sock",
          .brief = "One more Unix socket, for 'gpunbd kept' alone",
          .more = "; default none: it asks the admin socket, which this one is for where "
                  "--admin-socket is none.",
          .called = "--kept-socket --control-socket",
          .key = "keeping.socket",
          .with_file = true,
          .manual = R"(One more Unix socket by which
.Nm Cm kept
may ask what is kept: for servers without an admin socket.
It has mode 0600, answers the server's user and root, and answers nothing else.
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
HTTP with a page, metrics for Prometheus, and an API that tells and steers, see
.Xr gpunbd.yaml 5 .
It has mode 0600.
Default:
.Pa admin-PID.sock
in
.Ev RUNTIME_DIRECTORY ,
which systemd and the image set.
Without it, in the first of these folders that is, or can be made, one that only this user and root can write to:
for root
.Pa /run/gpunbd ,
.Pa /run/gpunbd-root
and
.Pa /tmp/gpunbd-0 ;
for others
.Pa $XDG_RUNTIME_DIR/gpunbd
and
.Pa /tmp/gpunbd- Ns Ar UID .)"},
         {.name = "--admin",
          .takes = "ADDRESS:PORT",
          .example = "127.0.0.1:9809",
          .brief = "The admin endpoint by TCP, too",
          .more = ", port 9809 where none is given; without a token or TLS it only tells, and "
                  "on loopback alone.",
          .called = "--http --metrics --prometheus --web --listen-http",
          .with_file = true,
          .manual = R"(The admin endpoint by TCP, too; the port is 9809 where none is given.
On loopback it only tells, unless there is a token or TLS
.Pq Va admin.tcp.tls ;
where other machines reach it one of them is needed.)"},
         {.name = "--admin-token",
          .takes = file_argument,
          .example = "/etc/gpunbd/admin.token",
          .brief = "File with the secret that clients of --admin have to show",
          .more = ", as Authorization: Bearer; only its owner and group may read it.",
          .called = "--token --bearer --api-key",
          .key = "admin.tcp.token",
          .with_file = true,
          .manual = R"(A file with the secret that clients of
.Fl -admin
have to show.)"},
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
A signal that ends the server goes to all that
.Ar command
has started; what is left of it after the grace period is killed.
Where the server itself is killed,
.Ar command
is ended and the socket removed all the same.
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
              .brief = "Whether clients may, or must, use TLS",
              .more = ": off, optional or required; default: required with one of the two below, "
                      "else off. off goes with --config, and not with those two.",
              .called = "--ssl --starttls --tls-mode",
              .key = "tls.mode",
              .with_file = true,
              .manual = R"(Whether clients may, or must, use TLS.
Default: required where certificates or psk are given, else off.
.Cm off
goes with
.Fl -config ,
not with the flags below.)"},
             {.name = "--tls-certificates",
              .takes = "DIR",
              .example = "/etc/gpunbd/tls",
              .brief = "Folder of server-cert.pem, server-key.pem and ca-cert.pem",
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
              .brief = "Must clients have a certificate of ca-cert.pem?",
              .more = " true or false; default true.",
              .words = {"true", "false"},
              .called = "--tls-verify-peer --tls-verify --verify-peer --verify",
              .key = "tls.verify_clients",
              .with_file = true,
              .manual = R"(Must a client that uses certificates show one that
.Pa ca-cert.pem
has signed?
.Cm true
or
.Cm false .
Default:
.Cm true .)"},
             {.name = "--tls-psk",
              .takes = file_argument,
              .example = "/etc/gpunbd/keys.psk",
              .brief = "Keys shared with clients",
              .more = ", a line user:hexkey for each.",
              .called = "--psk --keys",
              .key = "tls.psk",
              .with_file = true,
              .manual = R"(Keys shared with clients, a line
.Ar user : Ns Ar hexkey
for each.
.Pp
.Xr gpunbd.yaml 5 ,
.Sx TLS ,
says what is in the files, and who may open them.)"}}};
}

FlagGroup process_flags() {
    return {
        "Process",
        {{.name = "--pidfile",
          .takes = file_argument,
          .example = "/run/gpunbd.pid",
          .brief = "Write the process id once clients can connect",
          .more = "; the file is removed at the end.",
          .called = "--pid --pid-file",
          .with_file = true,
          .manual = R"(Write the server's process id to
.Ar file
once clients can connect, and remove the file at the end.)"},
         {.name = "--background",
          .brief = "Return once clients can connect",
          .more = ", with the status of a failed start otherwise, and go on in the background; the "
                  "log still goes to standard error.",
          .called = "--fork --daemon --daemonize --detach -d",
          .with_file = true,
          .manual =
              R"(Return with status 0 once clients can connect, and go on in the background; with the status
of the start if that fails.
The server leaves the session and closes standard input and output.
Its log still goes to standard error: redirect that to a file, for instance by
.Ql 2>>gpunbd.log ,
if the terminal will be closed or the output of the command is captured.
.Fl -pidfile
holds the id of the process that stays.
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
          .brief = "End the server when its parent process has ended",
          .more = ", as SIGTERM does.",
          .called = "--exit --die-with-parent",
          .with_file = true,
          .manual = R"(End the server when its parent process has ended, as
.Dv SIGTERM
does.)"},
         {.name = "--core-dumps",
          .brief = "Let a core dump hold memory",
          .more = ", what clients have stored included, as the system is set up; default: none.",
          .called = "--core --coredump --dump",
          .with_file = true,
          .manual = R"(Let core dumps hold memory, as the system is set up.
Default: they hold none, for what clients have stored is in it; the command of
.Fl -run
inherits that.)"}}};
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
              R"(Bytes per copy of the pinned pipeline, through which data passes to a GPU that the CPU cannot
address: a power of two from 64K to 16M.
Default: calibrated at start.)"},
         {.name = "--slots",
          .takes = "N",
          .example = "2",
          .brief = "Chunks of one transfer in flight on a device",
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
              .brief = "Least level that is logged",
              .called = "--verbose --debug --quiet --level -v -q",
              .key = "log.level",
              .with_file = true,
              .manual = R"(Least level that is logged.
Default:
.Cm info .)"},
             {.name = "--log-format",
              .takes = "KIND",
              .example = "json",
              .brief = "How lines are written",
              .called = "--json --format",
              .key = "log.format",
              .with_file = true,
              .manual = R"(Default:
.Cm text .)"},
             {.name = "--trace",
              .brief = "Keep histograms of latencies",
              .more = "; SIGUSR1 prints them.",
              .called = "--stats --metrics --histogram",
              .key = "trace",
              .with_file = true,
              .manual = R"(Keep histograms of latencies, which
.Dv SIGUSR1
prints.)"}}};
}

}  // namespace

std::vector<FlagGroup> serve_flags() {
    return {described(export_flags()),
            described(listener_flags()),
            described(tls_flags()),
            process_flags(),
            described(data_path_flags()),
            described(log_flags()),
            {"", {}}};
}

}  // namespace gpunbd::tools
