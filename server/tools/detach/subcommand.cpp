#include "server/tools/detach/subcommand.hpp"

#include <fmt/format.h>

#include <chrono>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/nbd_device.hpp"
#include "server/tools/detach/ublk_at_shutdown.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view force_details =
    R"(The device exists until its last user closes it.
Swap is not turned off.)";
constexpr std::uint64_t longest_shutdown = 3600;

}  // namespace

DetachCommand::DetachCommand()
    : Command(
          {.name = "detach",
           .called = "disconnect unmap unplug umount unmount swapoff",
           .takes = device_argument,
           .example = "/dev/nbd0",
           .brief = "Detach a device",
           .usage = "Usage: gpunbd detach DEVICE [--force]\n"
                    "       gpunbd detach --at-shutdown SECONDS\n",
           .about =
               R"(Disables swap on the device, and disconnects it. A device that is in use is not
detached; its users are listed.
)",
           .groups = {{"Flags",
                       {{.name = "--force",
                         .brief = "Disconnect the device even if it is in use",
                         .more = "; its users get I/O errors, and programs whose memory is swapped "
                                 "out to it are killed.",
                         .called = "-f --lazy --kill",
                         .details = force_details,
                         .store = into(force)},
                        {.name = "--at-shutdown",
                         .takes = "SECONDS",
                         .example = "90",
                         .brief = "While the machine shuts down, unmount all ublk devices",
                         .more = " of gpunbd, and end swap, LVM, dm-crypt and md on them; for "
                                 "ExecStop= of the server's unit. Tries for up to SECONDS while "
                                 "programs use them.",
                         .excludes = {"--force"},
                         .why_not = "a ublk device ends with its server",
                         .store = into(at_shutdown, integer_in(1, longest_shutdown))}}}},
           .examples = "  gpunbd detach /dev/nbd0\n",
           .ending =
               R"(Exit codes: 0 detached; 1 in use, or not attached; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual = R"(Disable swap on the device and disconnect it, whichever program attached it.
If the device is mounted, a part of another device or open in a program, or if the swapped-out memory does not fit into
RAM, the device stays attached, and a message names the reason and the remedy.
)",
           .store = into(device, attach::nbd_device)}) {}

void DetachCommand::store_arguments(const std::vector<std::string>& arguments) {
    if (!at_shutdown) return Command::store_arguments(arguments);
    if (arguments.empty()) return;
    throw UsageError(
        fmt::format("takes no DEVICE with --at-shutdown; leave {} out", in_quotes(arguments[0])));
}

int DetachCommand::run(const Commands&) {
    if (!at_shutdown) return attach::run_detach(device, force);
    return release_ublk_at_shutdown(std::chrono::seconds(*at_shutdown));
}

}  // namespace gpunbd::tools
