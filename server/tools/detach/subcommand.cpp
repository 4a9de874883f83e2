#include "server/tools/detach/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/nbd_device.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view force_details =
    R"(The device exists until its last user closes it.
Swap is not turned off.)";

}  // namespace

DetachCommand::DetachCommand()
    : Command(
          {.name = "detach",
           .called = "disconnect unmap unplug umount unmount swapoff",
           .takes = device_argument,
           .example = "/dev/nbd0",
           .brief = "Detach a device",
           .usage = "Usage: gpunbd detach DEVICE [--force]\n",
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
                         .store = into(force)}}}},
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

int DetachCommand::run(const Commands&) { return attach::run_detach(device, force); }

}  // namespace gpunbd::tools
