#include "server/tools/attach/subcommand.hpp"

#include <fmt/format.h>

#include <string_view>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/attachment_list.hpp"
#include "server/tools/attach/nbd_device.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view swap_manual = R"(Swap to the device.
If it is empty, write a swap signature first; a device with any other contents is refused.
The priority of the swap space is 50, above disks and below compressed memory.
The process needs locked memory, exemption from the OOM killer, real-time priority
.Pq SCHED_FIFO 5
and
.Dv PR_SET_IO_FLUSHER ,
and refuses to start without them.)";
constexpr std::string_view background_manual =
    R"(Exit with status 0 when the device is ready, and continue in a background process, which logs to the kernel's log.
If the device cannot be attached, exit with an error and another status.)";
constexpr std::string_view systemd_manual =
    R"(Print the unit that attaches the device at each start, after a line with its path, and attach nothing.
With
.Fl -swap
it is
.Pa gpunbd-swap@nbdN.service ,
the unit of the package for this URI and these flags; otherwise
.Pa gpunbd-attach-nbdN.service .)";
constexpr std::string_view json_manual = R"(With
.Fl -list :
print one JSON object instead of a table.
Its
.Va attached
is a list of objects with
.Va device , size , process , uri , instance
and
.Va uses ,
a list of sentences.
Unknown values are null.)";

constexpr std::uint64_t day = 86'400;

auto block_size(std::string_view text) { return rules::bytes(text, {512, 4096, true}); }

}  // namespace

AttachCommand::AttachCommand()
    : Command(
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
           .groups =
               {{"Flags",
                 {{.name = "--connections",
                   .takes = "N",
                   .example = "4",
                   .brief = "Connections to the server",
                   .more = ", 1 to 256; default 1. The export has to be for several.",
                   .called = "--conns --streams -C -connections",
                   .store = into(settings.connections, integer_in(1, 256))},
                  {.name = "--swap",
                   .brief = "Swap to the device",
                   .more = ": write a signature where it is empty, and swap on. What keeps "
                           "this process alive while memory is short has to work then.",
                   .called = "--swapon --mkswap",
                   .manual = swap_manual,
                   .store = into(settings.swap)},
                  {.name = "--timeout",
                   .takes = "SECONDS",
                   .example = "5",
                   .brief = "After which a request counts its connection as dead",
                   .more = ", and is sent again by another one; 0 to 86400, 0: never; default "
                           "5. Longer than the slowest request takes.",
                   .store = into(settings.timeout, integer_in(0, day))},
                  {.name = "--dead-timeout",
                   .takes = "SECONDS",
                   .example = "60",
                   .brief = "How long requests wait for a server that is away",
                   .more = ", up to a year; later they fail, and the device is given up; "
                           "default 60, with --swap 86400.",
                   .called = "--dead --reconnect --reconnect-delay --persist",
                   .store = into(settings.dead_timeout, integer_in(1, 365 * day))},
                  {.name = "--block-size",
                   .takes = "SIZE",
                   .example = "4K",
                   .brief = "Sector of the device",
                   .more = ": 512, 1K, 2K or 4K; default: the least that the server takes.",
                   .called = "--blocksize --sector-size -b",
                   .store = into(settings.block_size, block_size)},
                  {.name = "--background",
                   .brief = "Return once the device is ready",
                   .more = ", and go on in the background; lines then go to the kernel's log.",
                   .called = "--fork --daemon --daemonize --detach -d",
                   .manual = background_manual,
                   .store = into(settings.background)},
                  {.name = "--systemd",
                   .brief = "Print the unit that attaches it at each start instead",
                   .more = ".",
                   .called = "--unit --units --service",
                   .manual = systemd_manual,
                   .store = into(settings.unit)},
                  {.name = "--list",
                   .brief = "List what is attached, and who uses it",
                   .more = ".",
                   .called = "--ls --show --status",
                   .store = into(list)},
                  {.name = "--json",
                   .brief = "With --list: print JSON instead of a table",
                   .more = ".",
                   .called = "--format --output",
                   .manual = json_manual,
                   .store = into(json)}}}},
           .examples = R"(  gpunbd attach 'nbd+unix:///?socket=/run/gpunbd.sock' /dev/nbd0
  gpunbd attach --background nbd://storage.example.org/scratch /dev/nbd1
  gpunbd attach --systemd --swap nbd://127.0.0.1/ /dev/nbd2
  gpunbd attach --list
)",
           .ending =
               R"(Exit codes: 0 it was detached, by whomever; 1 it could not be attached, or was
given up; 2 wrong usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm attach
.Ar uri device
.Op Fl -background | Fl -systemd
.Op Fl -swap
.Op Ar flags
.Nm
.Cm attach
.Fl -list
.Op Fl -json
)",
           .manual = R"(.It Cm attach Ar uri device Op Ar flags
Attach an export of any NBD server as
.Ar device ,
which is
.Pa /dev/nbd0
or the like, by the kernel's own client
.Pq Ql modprobe nbd ;
it needs root.
.Ar uri
is
.Li nbd:// Ns Ar host Ns Oo : Ns Ar port Oc Ns / Ns Ar export
or
.Li nbd+unix:/// Ns Ar export Ns Li ?socket= Ns Ar path .
In TLS
.Pq Li nbds:// ,
with the parameters that
.Cm ping
has, the kernel does all of it
.Pq Ql modprobe tls ,
by TLS 1.2, or nothing is attached; over a Unix socket there is none, and
.Fl -swap
excludes it.
A host is looked up, and files are read, once.
.Pp
Once the device is there,
.Ev NOTIFY_SOCKET
is told, and the process stays, in the foreground or with
.Fl -background
in the background, its memory locked: a connection that dies is replaced as soon as the server
is there again, and who uses the device only waits.
The kernel is told the instance of the contents, where the server is
.Nm ,
and refuses one that comes back with others.
It sends requests as large as server and kernel take, in the order in which they come.
.Pp
.Dv SIGTERM
and
.Dv SIGINT
do what
.Cm detach
does, and so does
.Dv SIGHUP
unless it was ignored at the start.
While something holds the device, the process says what, goes on, and tries again each second.
.Pp
If
.Xr systemd 1
is shutting the machine down at that time, the process first takes away what lies on the device: it unmounts file
systems, and removes devices of device mapper and md.
After two minutes without progress it cuts the device off, so that a server that does not answer cannot keep the machine
from ending; what was not written by then is lost.
.Pp
If it is killed, the device is not: another
.Cm attach
to the same contents takes it over.
.Pp
Machines without disks have their root so.
Scripts for Debian's initramfs-tools, which
.Pa /etc/initramfs-tools/conf.d/gpunbd
asks for, attach as
.Pa /dev/nbd0
and
.Pa /dev/nbd1
what the kernel's command line names as
.Li gpunbd.root= Ns Ar uri
and
.Li gpunbd.overlay= Ns Ar uri ,
and put the file system of the second over that of the first.
.It Cm attach Fl -list
List the devices of the kernel's client: the size, the
.Cm attach
that keeps it and the
.Ar uri
of that, the instance, and what holds it: mounts, devices that are made of it, programs that have it open, and swap.
)"}) {}

void AttachCommand::store_arguments(const std::vector<std::string>& arguments) {
    arguments_ = arguments;
    if (list) return;
    if (json) throw UsageError("--json is for --list; leave it out");
    if (arguments.size() > 2) {
        throw UsageError(
            fmt::format("takes one URI and one DEVICE; leave {} out", in_quotes(arguments[2])));
    }
    if (arguments.size() < 2) {
        const bool has_uri = !arguments.empty() && arguments[0].find("://") != std::string::npos;
        throw UsageError(fmt::format("{} missing; {}",
                                     has_uri             ? "DEVICE is"
                                     : arguments.empty() ? "URI and DEVICE are"
                                                         : "URI is",
                                     write_for_example()));
    }
    settings.uri = arguments[0];
    if (const auto wrong = into(settings.device, attach::nbd_device)(arguments[1])) {
        throw UsageError(*wrong);
    }
}

void AttachCommand::check() {
    if (settings.unit && settings.background) {
        throw UsageError("--systemd prints a unit and attaches nothing; leave --background out");
    }
    if (!list) return;
    if (!arguments_.empty()) {
        throw UsageError(
            fmt::format("--list tells of all devices; leave {} out", in_quotes(arguments_[0])));
    }
    const attach::AttachOptions none;
    const std::pair<std::string_view, bool> others[] = {
        {"--connections", settings.connections != none.connections},
        {"--timeout", settings.timeout.has_value()},
        {"--dead-timeout", settings.dead_timeout.has_value()},
        {"--block-size", settings.block_size.has_value()},
        {"--swap", settings.swap},
        {"--background", settings.background},
        {"--systemd", settings.unit}};
    for (const auto& [flag, given] : others) {
        if (given) {
            throw UsageError(fmt::format("--list attaches nothing; leave {} out", flag));
        }
    }
}

int AttachCommand::run(const Commands&) {
    if (!list) return attach::run_attach(settings);
    const std::string root = "/";
    fmt::print("{}", json ? attach::attachment_json(root) : attach::attachment_table(root));
    return 0;
}

}  // namespace gpunbd::tools
