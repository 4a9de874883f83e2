#include "config/flags.hpp"

#include <iterator>
#include <utility>

#include "config/schema.hpp"

namespace gpunbd::config {
namespace {

// What the key of a flag says, where the flag does not.
FlagGroup described(FlagGroup group) {
    for (Flag& flag : group.flags) {
        if (flag.key.empty()) continue;
        const KeyText& key = key_text(flag.key);
        if (flag.words.empty()) flag.words = key.words;
        if (flag.more.empty()) flag.more = key.range + "; d" + key.fallback.substr(1) + '.';
    }
    return group;
}

const Flag help{.name = "--help", .letter = "-h", .brief = "Show this", .more = "."};

FlagGroup export_flags() {
    return {
        "Export",
        {{.name = "--name",
          .takes = "NAME",
          .example = "fast",
          .brief = "Name that clients ask for",
          .more = "; default: the empty name, NBD's default export.",
          .called = "--export --export-name --exportname",
          .key = "exports[].name"},
         {.name = "--size",
          .takes = "SIZE",
          .example = "8G",
          .brief = "Size of the export",
          .more = ": a multiple of 512 bytes, or a share of its devices' memory such as 50% (of "
                  "the host: of the memory available); default 100%.",
          .called = "--memory --mem --capacity --length --vram",
          .key = "exports[].size"},
         {.name = "--device",
          .takes = "ID",
          .example = "cuda:0",
          .brief = "Where the memory comes from",
          .more =
              ": host, cuda:N, pci:ADDRESS/BAR, or auto (the first GPU, else the host); default "
              "auto. Repeat it to spread the export over several devices.",
          .words = {"auto", "host", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5",
                    "cuda:6", "cuda:7"},
          .called = "--gpu --gpus --cuda --card --devices --pci --bar",
          .key = "exports[].devices",
          .repeats = true},
         {.name = "--layout",
          .takes = "KIND",
          .example = "stripe",
          .brief = "How several devices are filled",
          .more = ": linear, one after the other, or stripe, all in turn; default linear.",
          .called = "--stripe --striped --raid --linear",
          .key = "exports[].layout"},
         {.name = "--stripe-size",
          .takes = "SIZE",
          .example = "4M",
          .brief = "Bytes on one device before the next one's turn",
          .more = ", a multiple of the page size; default one page. Needs --layout stripe.",
          .key = "exports[].stripe_size"},
         {.name = "--provision",
          .takes = "KIND",
          .example = "full",
          .brief = "When memory is taken",
          .more = ": thin, when it is first written, or full, all of it at start; default thin, "
                  "full with --swap.",
          .called = "--thin --full --preallocate --prealloc",
          .key = "exports[].provision"},
         {.name = "--page-size",
          .takes = "SIZE",
          .example = "2M",
          .brief = "Unit of allocation",
          .key = "exports[].page_size"},
         {.name = "--reserve",
          .takes = "SIZE",
          .example = "1G",
          .brief = "Memory of each --device that is never taken",
          .more = "; default: the device's own. Needs --device.",
          .key = "devices[].reserve"},
         {.name = "--force-pci",
          .brief = "Serve memory of a PCI card that a driver has, or that is a display",
          .more = ". Needs --device pci:ADDRESS/BAR.",
          .called = "--force",
          .key = "devices[].force"},
         {.name = "--readonly",
          .brief = "Refuse what would change the export",
          .more = ".",
          .called = "--ro",
          .key = "exports[].read_only"},
         {.name = "--keep",
          .brief = "Contents outlive the server",
          .more = ", where a supervisor keeps them: systemd, or gpunbd keep.",
          .called = "--persist --persistent --preserve",
          .key = "exports[].keep"},
         {.name = "--swap",
          .brief = "The machine that serves it may swap to it",
          .more = ": memory is locked, threads run in real time, and what of that cannot be had is "
                  "an error; SIGTERM waits for swapoff.",
          .called = "--mlock --mlockall --lock --realtime --protect",
          .key = "exports[].swap"},
         {.name = "--block-size",
          .takes = "SIZE",
          .example = "4K",
          .brief = "What every offset and length has to be a multiple of",
          .called = "--blocksize --block --sector-size --sector --blocksize-minimum",
          .key = "exports[].block_size.minimum"},
         {.name = "--config",
          .takes = file_argument,
          .example = "/etc/gpunbd.yaml",
          .brief = "Take exports and listeners from a YAML file",
          .more = ", see gpunbd.yaml(5). Excludes the flags above and those under Listeners but "
                  "--insecure, --keeping-socket, --admin, --admin-socket, --admin-token and "
                  "--run.",
          .called = "--file --yaml --conf --configuration",
          .with_file = true}}};
}

FlagGroup listener_flags() {
    return {"Listeners",
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
              .more = ", repeatable; default 127.0.0.1 and ::1. 0.0.0.0 or :: is every interface.",
              .called = "--listen --address --addr --ip --ipaddr --interface --ip-addr",
              .key = "listeners.tcp[].address",
              .repeats = true},
             {.name = "--unix",
              .letter = "-U",
              .takes = "PATH",
              .example = "/run/gpunbd.sock",
              .brief = "Unix socket to listen on",
              .more = ", repeatable. Without -p and -b: no TCP then.",
              .called = "--socket --sock --unix-socket",
              .key = "listeners.unix[].path",
              .repeats = true},
             {.name = "--vsock",
              .takes = "PORT",
              .example = "10809",
              .brief = "Vsock port to listen on, for virtual machines or their host",
              .more = ", repeatable. CID:PORT: only as this context id. Without -p and -b: no TCP "
                      "then.",
              .called = "--vm --vsock-port --af-vsock",
              .repeats = true},
             {.name = "--insecure",
              .brief = "Listen where other machines can reach it, unprotected",
              .more = ": without TLS and without lists of who may open what, whoever reaches the "
                      "address may read and change everything.",
              .called = "--allow-insecure --unsafe --no-tls",
              .key = "insecure",
              .with_file = true},
             {.name = "--keeping-socket",
              .takes = "PATH",
              .example = "/run/gpunbd/keeping.sock",
              .brief = "Unix socket for 'gpunbd kept', where contents are kept",
              .more = "; default keeping.sock in $RUNTIME_DIRECTORY, /run/gpunbd or "
                      "$XDG_RUNTIME_DIR/gpunbd.",
              .called = "--kept-socket --control-socket",
              .key = "keeping.socket",
              .with_file = true},
             {.name = "--admin-socket",
              .takes = "PATH",
              .example = "/run/gpunbd/admin.sock",
              .brief = "Unix socket of the admin endpoint, or none",
              .more = ": HTTP with status, metrics, a page and an API; default admin-PID.sock in "
                      "$RUNTIME_DIRECTORY, /run/gpunbd or $XDG_RUNTIME_DIR/gpunbd.",
              .called = "--http-socket --status-socket",
              .key = "admin.socket",
              .with_file = true},
             {.name = "--admin",
              .takes = "ADDRESS:PORT",
              .example = "127.0.0.1:9809",
              .brief = "The admin endpoint by TCP, too",
              .more = ", port 9809 where none is given; without a token or TLS it only tells, and "
                      "on loopback alone.",
              .called = "--http --metrics --prometheus --web --listen-http",
              .with_file = true},
             {.name = "--admin-token",
              .takes = file_argument,
              .example = "/etc/gpunbd/admin.token",
              .brief = "File with the secret that clients of --admin have to show",
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
              .with_file = true}}};
}

FlagGroup tls_flags() {
    return {"TLS",
            {{.name = "--tls",
              .takes = "MODE",
              .example = "required",
              .brief = "Whether clients may, or must, use TLS",
              .more = ": off, optional or required; default: required with one of the two below, "
                      "else off.",
              .called = "--ssl --starttls --tls-mode",
              .key = "tls.mode",
              .with_file = true},
             {.name = "--tls-certificates",
              .takes = "DIR",
              .example = "/etc/gpunbd/tls",
              .brief = "Folder of server-cert.pem, server-key.pem and ca-cert.pem",
              .more = ".",
              .called = "--tls-creds --cert --certificate --certfile --certs --tls-cert --key",
              .key = "tls.certificates",
              .with_file = true},
             {.name = "--tls-verify-clients",
              .takes = "BOOLEAN",
              .example = "false",
              .brief = "Must clients have a certificate of ca-cert.pem?",
              .more = " true or false; default true.",
              .words = {"true", "false"},
              .called = "--tls-verify-peer --tls-verify --verify-peer --verify",
              .key = "tls.verify_clients",
              .with_file = true},
             {.name = "--tls-psk",
              .takes = file_argument,
              .example = "/etc/gpunbd/keys.psk",
              .brief = "Keys shared with clients",
              .more = ", a line user:hexkey for each.",
              .called = "--psk --keys",
              .key = "tls.psk",
              .with_file = true}}};
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
          .with_file = true},
         {.name = "--exit-with-parent",
          .brief = "End the server when its parent process has ended",
          .more = ", as SIGTERM does.",
          .called = "--exit --die-with-parent",
          .with_file = true},
         {.name = "--core-dumps",
          .brief = "Let a core dump hold memory",
          .more = ", what clients have stored included, as the system is set up; default: none.",
          .called = "--core --coredump --dump",
          .with_file = true}}};
}

FlagGroup data_path_flags() {
    return {"Data path",
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
              .with_file = true},
             {.name = "--slots",
              .takes = "N",
              .example = "2",
              .brief = "Chunks of one transfer in flight on a device",
              .key = "pipeline.slots",
              .with_file = true}}};
}

FlagGroup log_flags() {
    return {"Log",
            {{.name = "--log-level",
              .takes = "LEVEL",
              .example = "debug",
              .brief = "Least level that is logged",
              .called = "--verbose --debug --quiet --level -v -q",
              .key = "log.level",
              .with_file = true},
             {.name = "--log-format",
              .takes = "KIND",
              .example = "json",
              .brief = "How lines are written",
              .called = "--json --format",
              .key = "log.format",
              .with_file = true},
             {.name = "--trace",
              .brief = "Keep histograms of latencies",
              .more = "; SIGUSR1 prints them.",
              .called = "--stats --metrics --histogram",
              .key = "trace",
              .with_file = true}}};
}

// Those of the commands that ask a server by its admin endpoint, and `more`.
std::vector<Flag> asking_flags(std::vector<Flag> more) {
    std::vector<Flag> out{{.name = "--socket",
                           .takes = "PATH",
                           .example = "/run/gpunbd/admin-4711.sock",
                           .brief = "Unix socket where the server is asked",
                           .more = ".",
                           .called = "--admin-socket --unix --path"},
                          {.name = "--url",
                           .takes = "URL",
                           .example = "http://127.0.0.1:9809",
                           .brief = "Where it is asked by TCP",
                           .more = ": http://HOST:PORT.",
                           .called = "--host --address --server --uri"},
                          {.name = "--token",
                           .takes = file_argument,
                           .example = "/etc/gpunbd/admin.token",
                           .brief = "With --url: the token that it asks for",
                           .more = ", in a file that only its owner and group can read.",
                           .called = "--bearer --password --key"}};
    out.insert(out.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
    out.push_back(help);
    return out;
}

}  // namespace

const Command& program() {
    static const Command command{
        .name = "",
        .brief = "an NBD server that exports GPU memory as block devices",
        .usage = "Usage: gpunbd COMMAND [FLAGS]\n",
        .about = "Nothing is persistent: what is written is gone when the server ends.\n",
        .groups = {{"Flags",
                    {{.name = "--help",
                      .letter = "-h",
                      .brief = "Show this",
                      .more = ", or, after a command, the help of the command."},
                     {.name = "--version", .brief = "Show the version", .more = "."},
                     {.name = "--verbose",
                      .brief = "With --version: also the build",
                      .more = ", the libraries, and where its files are."}}}},
        .examples = R"(  gpunbd serve                      the first GPU's memory, on port 10809
  gpunbd serve --size 8G --device cuda:0
  gpunbd serve --config /etc/gpunbd.yaml
  gpunbd check /etc/gpunbd.yaml
)",
        .ending = R"(Exit codes: 0 done; 1 failed at run time; 2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)"};
    return command;
}

const std::vector<Command>& commands() {
    static const std::vector<Command> all{
        {.name = "serve",
         .called = "start run server daemon export",
         .brief = "Serve exports to NBD clients",
         .usage = R"(Usage: gpunbd serve [FLAGS]
       gpunbd serve --config FILE [--run COMMAND]
                    [TLS, process, data path and log flags]
)",
         .about = R"(Without --config there is one export, which the flags describe. With no flags
at all it is the first GPU's free memory less a reserve or, without a GPU,
1 GiB of host memory. SIZE is a number with K, M, G or T (binary; 1.5GiB works
too), or plain bytes.
)",
         .groups = {described(export_flags()),
                    described(listener_flags()),
                    described(tls_flags()),
                    process_flags(),
                    described(data_path_flags()),
                    described(log_flags()),
                    {"", {help}}},
         .examples = R"(  gpunbd serve --size 8G --device cuda:0
  gpunbd serve --device cuda:0 --device cuda:1 --layout stripe --name fast
  gpunbd serve --size 1G --device host -U /run/gpunbd.sock
  gpunbd serve --size 2G --run 'nbdcopy a.img "$uri" && nbdinfo --map "$uri"'
  gpunbd serve --config /etc/gpunbd.yaml --log-level debug
)",
         .ending = R"(Exit codes: 0 ended by a signal, after clients were answered; 1 failed at run
time; 2 wrong usage or configuration. With --run: the status of COMMAND, or
128+n where signal n ended it.
See also: gpunbd(8), gpunbd.yaml(5)
)"},
        {.name = "keep",
         .called = "supervise watch respawn",
         .brief = "Start a server again when it dies, and keep what it holds",
         .usage = R"(Usage: gpunbd keep [FLAGS] [--] serve [FLAGS OF SERVE]
)",
         .about =
             R"(Runs that server, and runs it again when it dies, with the file descriptors that
it has left to be kept. Signals are passed on. Under systemd it is not needed:
gpunbd(8) says what to write into the unit.
)",
         .groups = {{"Flags",
                     {{.name = "--max-restarts",
                       .takes = "N",
                       .example = "10",
                       .brief = "Restarts within the time of --within",
                       .more = ", 1 to 10000; one more ends it all; default 10.",
                       .called = "--restarts --retries --limit"},
                      {.name = "--within",
                       .takes = "SECONDS",
                       .example = "60",
                       .brief = "That time",
                       .more = ", 1 to 86400; default 60.",
                       .called = "--interval --period --time --window"},
                      {.name = "--max-descriptors",
                       .takes = "N",
                       .example = "16384",
                       .brief = "File descriptors that are kept at most",
                       .more = ", 1 to 100000; default 16384.",
                       .called = "--descriptors --fds --max-fds --store"},
                      {.name = "--swap",
                       .brief = "The machine swaps to what the server serves",
                       .more = ": this process and the server get what keeps them alive while "
                               "memory is short, from their start on."},
                      help}}},
         .examples = R"(  gpunbd keep -- serve --config /etc/gpunbd.yaml
  gpunbd keep --max-restarts 100 --within 3600 -- serve --size 8G
)",
         .ending =
             R"(Exit codes: 0 or others, as the last server's, or 128+n where signal n ended it;
1 failed itself; 2 wrong usage or configuration.
See also: gpunbd(8)
)"},
        {.name = "kept",
         .called = "contents saved left drop",
         .takes = file_argument,
         .example = "/etc/gpunbd.yaml",
         .brief = "List what a server keeps, or end it",
         .usage = R"(Usage: gpunbd kept [FILE | --socket PATH] [--json]
       gpunbd kept [FILE | --socket PATH] --drop NAME
)",
         .about =
             R"(Asks the running server, as its user or root, for the contents that outlive it:
of which export, its size, what is used of it, on which devices, since when,
the id of the instance, and what has become of them. The server is the one of
that configuration FILE, or at PATH, or where one of this user, or of the
system, usually is.
)",
         .groups = {{"Flags",
                     {{.name = "--socket",
                       .takes = "PATH",
                       .example = "/run/gpunbd/keeping.sock",
                       .brief = "Where the server is asked",
                       .more = ", its --keeping-socket.",
                       .called = "--keeping-socket --unix --path"},
                      {.name = "--json",
                       .brief = "Print JSON instead of a table",
                       .more = ".",
                       .called = "--format --output"},
                      {.name = "--drop",
                       .takes = "NAME",
                       .example = "scratch",
                       .brief = "End the contents that no export has",
                       .more = ", which are listed under that name, and give their memory back. An "
                               "export that they kept from being served is then made anew.",
                       .called = "--delete --remove --rm --forget --discard"},
                      help}}},
         .examples = R"(  gpunbd kept
  gpunbd kept --json --socket /run/gpunbd/keeping.sock
  gpunbd kept /etc/gpunbd.yaml --drop scratch
)",
         .ending = R"(Exit codes: 0 done; 1 no server answers, or nothing of that name can be ended;
2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)"},
        {.name = "attach",
         .called = "connect map mount plug swap nbd-client client",
         .takes = "URI DEVICE",
         .example = "'nbd+unix:///?socket=/run/gpunbd.sock' /dev/nbd0",
         .brief = "Attach an export of any NBD server as a device of Linux",
         .usage = R"(Usage: gpunbd attach URI DEVICE [FLAGS]
       gpunbd attach --systemd URI DEVICE [FLAGS]
       gpunbd attach --list [--json]
)",
         .about =
             R"(Gives the kernel's NBD client its connections, and stays: a server that dies and
comes back with the same contents is connected to again, and who uses the
device only waits. SIGTERM and SIGINT detach it, as 'gpunbd detach' does. It
needs root, and the kernel's module: modprobe nbd.
)",
         .groups = {{"Flags",
                     {{.name = "--connections",
                       .takes = "N",
                       .example = "4",
                       .brief = "Connections to the server",
                       .more = ", 1 to 256; default 1. The export has to be for several.",
                       .called = "--conns --streams -C -connections"},
                      {.name = "--swap",
                       .brief = "Swap to the device",
                       .more = ": write a signature where it is empty, and swap on. What keeps "
                               "this process alive while memory is short has to work then.",
                       .called = "--swapon --mkswap"},
                      {.name = "--timeout",
                       .takes = "SECONDS",
                       .example = "5",
                       .brief = "After which a request counts its connection as dead",
                       .more = ", and is sent again by another one; 0 to 86400, 0: never; default "
                               "5. Longer than the slowest request takes."},
                      {.name = "--dead-timeout",
                       .takes = "SECONDS",
                       .example = "60",
                       .brief = "How long requests wait for a server that is away",
                       .more = ", up to a year; later they fail, and the device is given up; "
                               "default 60, with --swap 86400.",
                       .called = "--dead --reconnect --reconnect-delay --persist"},
                      {.name = "--block-size",
                       .takes = "SIZE",
                       .example = "4K",
                       .brief = "Sector of the device",
                       .more = ": 512, 1K, 2K or 4K; default: the least that the server takes.",
                       .called = "--blocksize --sector-size -b"},
                      {.name = "--systemd",
                       .brief = "Print the unit that attaches it at each start instead",
                       .more = ".",
                       .called = "--unit --units --service"},
                      {.name = "--list",
                       .brief = "List what is attached, and who uses it",
                       .more = ".",
                       .called = "--ls --show --status"},
                      {.name = "--json",
                       .brief = "With --list: print JSON instead of a table",
                       .more = ".",
                       .called = "--format --output"},
                      help}}},
         .examples = R"(  gpunbd attach 'nbd+unix:///?socket=/run/gpunbd.sock' /dev/nbd0
  gpunbd attach nbd://storage.example.org/scratch /dev/nbd1 --connections 4
  gpunbd attach --systemd --swap nbd://127.0.0.1/ /dev/nbd2
  gpunbd attach --list
)",
         .ending = R"(Exit codes: 0 it was detached, by whomever; 1 it could not be attached, or was
given up; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "detach",
         .called = "disconnect unmap unplug umount unmount swapoff",
         .takes = device_argument,
         .example = "/dev/nbd0",
         .brief = "Take such a device away",
         .usage = "Usage: gpunbd detach DEVICE [--force]\n",
         .about =
             R"(Takes swap off it, and disconnects it. Where it is mounted, or a part of another
device, it stays as it is, and who holds it is told.
)",
         .groups = {{"Flags",
                     {{.name = "--force",
                       .brief = "Disconnect whoever holds it",
                       .more = ", who has I/O errors from then on; where swap was on it, programs "
                               "die.",
                       .called = "-f --lazy --kill"},
                      help}}},
         .examples = "  gpunbd detach /dev/nbd0\n",
         .ending =
             R"(Exit codes: 0 done; 1 it is in use, or was not attached; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "ping",
         .called = "probe health healthcheck alive connect",
         .takes = "URI",
         .example = "nbd://127.0.0.1:10809",
         .brief = "Ask a server whether it answers for an export",
         .usage = "Usage: gpunbd ping URI [--timeout SECONDS]\n",
         .about =
             R"(Shakes hands with any NBD server as a client does, up to what opening the export
would tell; for health checks. It opens nothing, and counts as no client of the
export. URI is nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH; in TLS
nbds, with ?tls-certificates=DIR (ca-cert.pem, client-cert.pem, client-key.pem),
tls-hostname=NAME and tls-verify-peer=false, as libnbd has them.
)",
         .groups = {{"Flags",
                     {{.name = "--timeout",
                       .takes = "SECONDS",
                       .example = "5",
                       .brief = "How long all of it may take",
                       .more = ", 1 to 3600; default 5.",
                       .called = "--time --wait --deadline"},
                      help}}},
         .examples = R"(  gpunbd ping nbd://127.0.0.1:10809
  gpunbd ping 'nbd+unix:///scratch?socket=/run/gpunbd/gpunbd.sock'
  gpunbd ping 'nbds://node-7/?tls-certificates=/etc/pki/nbd' --timeout 2
)",
         .ending = R"(Exit codes: 0 it answers; 1 it does not, or there is no such export; 2 wrong
usage.
See also: gpunbd(8)
)"},
        {.name = "status",
         .called = "stat stats show metrics state",
         .brief = "Show what a server has, and what it has done",
         .usage = R"(Usage: gpunbd status [--socket PATH | --url URL [--token FILE]] [--json]
                     [--watch]
)",
         .about =
             R"(Asks the running server for its devices and their memory, its exports with
their clients, requests and errors, and for what takes long. Without --socket
and --url it is the only server of this user, or of the system; where there are
several, they are listed.
)",
         .groups = {{"Flags", asking_flags({{.name = "--json",
                                             .brief = "Print JSON instead of tables",
                                             .more = ", as the server answers /api/v1/status.",
                                             .called = "--format --output"},
                                            {.name = "--watch",
                                             .brief = "Print it again each second",
                                             .more = ", until it is interrupted.",
                                             .called = "--follow --repeat --interval -w -f"}})}},
         .examples = R"(  gpunbd status
  gpunbd status --watch --socket /run/gpunbd/admin-4711.sock
  gpunbd status --json --url http://127.0.0.1:9809
)",
         .ending = R"(Exit codes: 0 done; 1 no server answers, or there are several; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "top",
         .called = "htop monitor live dashboard",
         .brief = "Watch a server: who does how much, and how fast",
         .usage = "Usage: gpunbd top [--socket PATH | --url URL [--token FILE]]\n",
         .about =
             R"(Fills the terminal, and is new each second: devices with their memory by
export; exports with rates, latencies and clients; the busiest clients. A
server that goes away is waited for. Keys: q ends it, arrows and PgUp, PgDn
move, s sorts by something else, e shows one export alone, ? explains. Where
standard output is no terminal, a page is printed each second.
)",
         .groups = {{"Flags", asking_flags({})}},
         .examples = R"(  gpunbd top
  gpunbd top --url http://127.0.0.1:9809 --token /etc/gpunbd/admin.token
)",
         .ending = R"(Exit codes: 0 ended by a key or a signal; 1 no server answers, or there are
several; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "devices",
         .called = "list ls info gpus",
         .brief = "List the host's memory and the GPUs that exports can use",
         .usage = "Usage: gpunbd devices [--calibrate]\n",
         .about = R"(For each device: its id, name, total and free memory, PCI address and link,
copy engines, and the ways by which gpunbd can reach its memory.
)",
         .groups = {{"Flags",
                     {{.name = "--calibrate",
                       .brief = "Also measure the copies between host and device",
                       .more = ", and show the chunk size that 'gpunbd serve' would choose. Takes "
                               "a few seconds and some memory of each GPU."},
                      help}}},
         .examples = R"(  gpunbd devices
  gpunbd devices --calibrate
)",
         .ending = R"(Exit codes: 0 done; 1 failed at run time; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "check",
         .called = "validate test lint verify",
         .takes = file_argument,
         .example = "/etc/gpunbd.yaml",
         .brief = "Validate a configuration file and print the effective one",
         .usage = "Usage: gpunbd check FILE [--who CLIENT [--tls-name NAME] [--psk-user USER]]\n",
         .about = R"(Prints the effective configuration, defaults filled in, as YAML to standard
output; or every problem of the file as FILE:LINE:COLUMN: KEY: PROBLEM to
standard error. It also tries what serving will need: owners, devices, sizes;
and says what it could not try. Serves nothing.

With --who it answers another question: which exports that client may open, by
which rule, and in which line of the file that stands.
)",
         .groups = {{"Flags",
                     {{.name = "--who",
                       .takes = "CLIENT",
                       .example = "10.1.2.3",
                       .brief = "Tell what a client may open, and why",
                       .more = ": 10.1.2.3, ::1, unix:uid=1000,gid=100 or vsock:3."},
                      {.name = "--tls-name",
                       .takes = "NAME",
                       .example = "client.example.com",
                       .brief = "With --who: a name of its certificate",
                       .more = ", verified in TLS."},
                      {.name = "--psk-user",
                       .takes = "USER",
                       .example = "alice",
                       .brief = "With --who: whose shared key it uses in TLS",
                       .more = "."},
                      help}}},
         .examples = R"(  gpunbd check /etc/gpunbd.yaml
  gpunbd check /etc/gpunbd.yaml --who 10.1.2.3 --tls-name client.example.com
)",
         .ending = R"(Exit codes: 0 the file is good, and serving would work as far as could be
tried; 1 it is good, but something that serving needs is missing, or there is
no such client; 2 it is not good, or wrong usage.
See also: gpunbd(8), gpunbd.yaml(5)
)"},
        {.name = "doctor",
         .called = "diagnose health support report",
         .takes = "TOPIC",
         .example = "swap",
         .words = {"swap", "remote", "gpu", "keep"},
         .brief = "Tell what of this machine needs mending",
         .usage = "Usage: gpunbd doctor [swap|remote|gpu|keep] [--config FILE] [--json]\n",
         .about =
             R"(Looks at limits, rights, the kernel and its settings, drivers and cards, and
says of each whether it is fit, with the remedy where not. It changes nothing.
Run it as the user of the server, for these are that user's rights.
  swap    the kernel's client, and swapping to a server of the same machine
  remote  clients on other machines: TLS and its files, how many can connect
  gpu     the driver, what the CPU sees of the card's memory, NUMA
  keep    contents that outlive the server
)",
         .groups = {{"Flags",
                     {{.name = "--config",
                       .takes = file_argument,
                       .example = "/etc/gpunbd.yaml",
                       .brief = "Look at the files that this configuration names for TLS",
                       .more = ". Default: /etc/gpunbd/gpunbd.yaml, where it is there.",
                       .called = "--file --conf --configuration"},
                      {.name = "--json",
                       .brief = "Print JSON instead of lines",
                       .more = ".",
                       .called = "--format --output"},
                      help}}},
         .examples = R"(  gpunbd doctor
  gpunbd doctor swap
)",
         .ending =
             R"(Exit codes: 0 nothing has failed, though there may be warnings; 1 something
has; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "tls-setup",
         .called = "tls certificates certs setup-tls mkcert keygen ca",
         .takes = folder_argument,
         .example = "/etc/gpunbd/tls --host storage.example.org",
         .brief = "Make certificates or shared keys for TLS",
         .usage = R"(Usage: gpunbd tls-setup DIR --host NAME... [--client NAME...] [--days N]
       gpunbd tls-setup DIR --client NAME...
       gpunbd tls-setup DIR --psk USER...
)",
         .about =
             R"(Makes in DIR what servers and clients look for: an authority, the certificate of
the server, and for each client or user a folder to be copied there; and prints
how to use them. Run again, it adds clients and users. It never replaces a file
but keys.psk, which it extends; and makes all that was asked for, or nothing.
)",
         .groups = {{"Flags",
                     {{.name = "--host",
                       .takes = "NAME",
                       .example = "storage.example.org",
                       .brief = "What clients call the server",
                       .more = ": a DNS name or a numeric address, repeatable.",
                       .called = "--server --hostname --san --dns --ip --name",
                       .repeats = true},
                      {.name = "--client",
                       .takes = "NAME",
                       .example = "alice",
                       .brief = "A client that gets a certificate",
                       .more = ", repeatable.",
                       .called = "--user --clients --peer",
                       .repeats = true},
                      {.name = "--psk",
                       .takes = "USER",
                       .example = "alice",
                       .brief = "A user who gets a shared key instead",
                       .more = ", repeatable.",
                       .called = "--key --shared-key --keys",
                       .repeats = true},
                      {.name = "--days",
                       .takes = "N",
                       .example = "730",
                       .brief = "How long the certificates are valid",
                       .more = ", 1 to 3650, but no longer than the authority, which is valid for "
                               "ten years; default 730.",
                       .called = "--valid --validity --expires"},
                      help}}},
         .examples = R"(  gpunbd tls-setup /etc/gpunbd/tls --host storage.example.org --client alice
  gpunbd tls-setup /etc/gpunbd/tls --client bob
  gpunbd tls-setup /etc/gpunbd/tls --psk alice
)",
         .ending = R"(Exit codes: 0 done; 1 failed, and nothing was made; 2 wrong usage.
See also: gpunbd(8)
)"},
        {.name = "completion",
         .takes = "SHELL",
         .example = "bash",
         .words = {"bash", "zsh", "fish"},
         .brief = "Print the completions of bash, zsh or fish",
         .usage = "Usage: gpunbd completion bash|zsh|fish\n",
         .about = R"(Packages install them. Without a package, one of these has the shell complete
gpunbd's commands, flags and their values:
  bash   in ~/.bashrc:  source <(gpunbd completion bash)
  zsh    gpunbd completion zsh > _gpunbd, in a folder of $fpath
  fish   gpunbd completion fish > ~/.config/fish/completions/gpunbd.fish
)",
         .groups = {{"Flags", {help}}},
         .examples = "  source <(gpunbd completion bash)\n",
         .ending = R"(Exit codes: 0 done; 2 wrong usage.
See also: gpunbd(8)
)"}};
    return all;
}

const Command* find_command(std::string_view name) {
    for (const Command& command : commands()) {
        if (command.name == name) return &command;
    }
    return nullptr;
}

const Flag* find_flag(const Command& command, std::string_view name) {
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) {
            if (flag.name == name || (!flag.letter.empty() && flag.letter == name)) return &flag;
        }
    }
    return nullptr;
}

}  // namespace gpunbd::config
