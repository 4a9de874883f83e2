#include "server/tools/detach/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/nbd_device.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view force_manual = R"(Disconnect the device even if it is in use.
Its users get I/O errors, and the device exists until its last user closes it.
Swap is not turned off: programs with memory on the device are killed.)";

}  // namespace

DetachCommand::DetachCommand()
    : Command(
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
                         .more =
                             ", who has I/O errors from then on; where swap was on it, programs "
                             "die.",
                         .called = "-f --lazy --kill",
                         .manual = force_manual,
                         .store = into(force)}}}},
           .examples = "  gpunbd detach /dev/nbd0\n",
           .ending =
               R"(Exit codes: 0 done; 1 it is in use, or was not attached; 2 wrong usage.
See also: gpunbd(8)
)",
           .synopsis = R"(.Nm
.Cm detach
.Ar device
.Op Fl -force
)",
           .manual = R"(.It Cm detach Ar device
Swap it off, and disconnect it, by whatever it was attached.
Where it is mounted, a part of another device or open in a program, or where what is swapped out does not fit into
memory, nothing is done, and a line says why and what to do.
)",
           .store = into(device, attach::nbd_device)}) {}

int DetachCommand::run(const Commands&) { return attach::run_detach(device, force); }

}  // namespace gpunbd::tools
