#include "server/tools/attach/subcommand.hpp"

#include <fmt/format.h>

#include <string_view>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/attachment.hpp"
#include "server/tools/attach/device.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view swap_details = R"(A device with any other contents is refused.
The priority of the swap space is 50, above disks and below compressed memory.
The process needs locked memory, exemption from the OOM killer, real-time priority
.Pq SCHED_FIFO 5
and
.Dv PR_SET_IO_FLUSHER ,
and refuses to start without them.)";
constexpr std::string_view systemd_details =
    R"(The unit follows a line with its path, and nothing is attached.
With
.Fl -swap
it is
.Pa gpunbd-swap@nbdN.service ,
the unit of the package for this URI and these flags; otherwise
.Pa gpunbd-attach-nbdN.service .)";
constexpr std::string_view json_details = R"(The object's
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
           .brief = "Attach an export of an NBD server as a block device",
           .usage = R"(Usage: gpunbd attach URI DEVICE [FLAGS]
       gpunbd attach --systemd URI DEVICE [FLAGS]
       gpunbd attach --list [--json]
)",
           .about =
               R"(Connects an export to the kernel's NBD client and keeps running. If the server
dies and returns with the same contents, the connections are replaced; users of
the device see only a delay. SIGTERM and SIGINT detach the device, as 'gpunbd
detach' does. Needs root and the kernel module nbd: modprobe nbd.
)",
           .groups =
               {{"Flags",
                 {{.name = "--connections",
                   .takes = "N",
                   .example = "4",
                   .brief = "Connections to the server",
                   .more = ", 1 to 256; default 1. The export has to support several.",
                   .called = "--conns --streams -C -connections",
                   .store = into(settings.connections, integer_in(1, 256))},
                  {.name = "--swap",
                   .brief = "Use the device as swap",
                   .more = ": write a swap signature if the device is empty, and swap on. This "
                           "process must be able to run while memory is short.",
                   .called = "--swapon --mkswap",
                   .details = swap_details,
                   .store = into(settings.swap)},
                  {.name = "--timeout",
                   .takes = "SECONDS",
                   .example = "5",
                   .brief = "Time after which a request marks its connection as dead",
                   .more = ", and is sent again over another one; 0 to 86400, 0: never; default 5. "
                           "Has to exceed the duration of the slowest request.",
                   .store = into(settings.timeout, integer_in(0, day))},
                  {.name = "--dead-timeout",
                   .takes = "SECONDS",
                   .example = "60",
                   .brief = "Time that requests wait for a server that is not reachable",
                   .more = ", up to a year; later they fail, and the device is given up; default "
                           "60, with --swap 86400.",
                   .called = "--dead --reconnect --reconnect-delay --persist",
                   .store = into(settings.dead_timeout, integer_in(1, 365 * day))},
                  {.name = "--block-size",
                   .takes = "SIZE",
                   .example = "4K",
                   .brief = "Sector size of the device",
                   .more = ": 512, 1K, 2K or 4K; default: the server's minimum.",
                   .called = "--blocksize --sector-size -b",
                   .store = into(settings.block_size, block_size)},
                  {.name = "--background",
                   .brief = "Return once the device is ready",
                   .more = ", and continue in the background; log lines then go to the kernel log.",
                   .called = "--fork --daemon --daemonize --detach -d",
                   .store = into(settings.background)},
                  {.name = "--systemd",
                   .brief = "Print a systemd unit that attaches the device at boot",
                   .more = ".",
                   .called = "--unit --units --service",
                   .excludes = {"--background"},
                   .why_not = "--systemd does not attach",
                   .details = systemd_details,
                   .store = into(settings.unit)},
                  {.name = "--list",
                   .brief = "List the attached devices and their users",
                   .more = ".",
                   .called = "--ls --show --status",
                   .excludes = {"--connections", "--swap", "--timeout", "--dead-timeout",
                                "--block-size", "--background", "--systemd"},
                   .why_not = "--list does not attach",
                   .store = into(list)},
                  {.name = "--json",
                   .brief = "With --list: print JSON instead of a table",
                   .more = ".",
                   .called = "--format --output",
                   .needs = "--list",
                   .details = json_details,
                   .store = into(json)}}}},
           .examples = R"(  gpunbd attach 'nbd+unix:///?socket=/run/gpunbd.sock' /dev/nbd0
  gpunbd attach --background nbd://storage.example.org/scratch /dev/nbd1
  gpunbd attach --systemd --swap nbd://127.0.0.1/ /dev/nbd2
  gpunbd attach --list
)",
           .ending =
               R"(Exit codes: 0 detached; 1 not attached, or no server for --dead-timeout; 2 wrong
usage.
See also: gpunbd(8)
)",
           .manual = R"(Attach an export of an NBD server as
.Ar device ,
for example
.Pa /dev/nbd0 ,
with the kernel's NBD client
.Pq Ql modprobe nbd .
This needs root.
.Ar uri
is
.Li nbd:// Ns Ar host Ns Oo : Ns Ar port Oc Ns / Ns Ar export
or
.Li nbd+unix:/// Ns Ar export Ns Li ?socket= Ns Ar path .
.Li nbds://
uses TLS 1.2, with the parameters of
.Cm ping .
The kernel encrypts and decrypts all data
.Pq Ql modprobe tls ;
if it cannot, the device is not attached.
TLS is not available over a Unix socket or with
.Fl -swap .
The host is resolved once, and TLS files are read once.
.Pp
When the device is ready, the process notifies
.Ev NOTIFY_SOCKET
and keeps running with locked memory, in the foreground or with
.Fl -background
in the background.
It replaces dead connections as soon as the server is reachable again; users of the device see only a delay.
If the server is
.Nm ,
the kernel records the instance of the contents and refuses a server that returns with other contents.
The device uses the largest requests that both the server and the kernel support, and no I/O scheduler.
.Pp
.Dv SIGTERM ,
.Dv SIGINT
and, unless it was ignored at the start,
.Dv SIGHUP
detach the device as
.Cm detach
does.
While the device is in use, the process logs its users and tries again each second.
.Pp
If
.Xr systemd 1
shuts the machine down, the process first releases the device: it unmounts file systems, and removes devices of device
mapper and md.
After two minutes without progress it disconnects the device, so that a server that does not answer cannot block the
shutdown.
Data that was not written by then is lost.
.Pp
If the process is killed, the device stays attached.
Another
.Cm attach
to the same contents takes it over.
.Pp
Diskless machines use it for their root file system.
The scripts for Debian's initramfs-tools are enabled in
.Pa /etc/initramfs-tools/conf.d/gpunbd .
They attach the exports that the kernel command line names as
.Li gpunbd.root= Ns Ar uri
and
.Li gpunbd.overlay= Ns Ar uri
as
.Pa /dev/nbd0
and
.Pa /dev/nbd1 ,
and mount an overlay with the second as its upper layer.
.Pp
.Fl -list
shows the attached devices: the size, the process id and
.Ar uri
of the
.Cm attach
process, the instance, and the uses of the device: mounts, devices built on it, programs that have it open, and swap.
)"}) {}

void AttachCommand::store_arguments(const std::vector<std::string>& arguments) {
    if (list && !arguments.empty()) {
        throw UsageError(
            fmt::format("--list shows all devices; leave {} out", in_quotes(arguments[0])));
    }
    if (list) return;
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

int AttachCommand::run(const Commands&) {
    if (!list) return attach::run_attach(settings);
    const std::string root = "/";
    fmt::print("{}", json ? attach::attachment_json(root) : attach::attachment_table(root));
    return 0;
}

}  // namespace gpunbd::tools
