#include "server/tools/devices/subcommand.hpp"

#include "config/command_line/store.hpp"
#include "server/tools/devices/device_list.hpp"

namespace gpunbd::tools {

using namespace config;

namespace {

constexpr std::string_view json_details = R"(An object with the lists
.Va devices
and
.Va ublk ;
.Va unusable ,
a list of GPUs with
.Va id
and
.Va error ;
and
.Va no_gpu ,
the reason why there is no GPU, or null.
Sizes are bytes; unknown values are null.)";

}  // namespace

DevicesCommand::DevicesCommand()
    : Command(
          {.name = "devices",
           .called = "list ls info gpus",
           .brief = "List host memory and the GPUs that exports can use",
           .usage = "Usage: gpunbd devices [--calibrate] [--json]\n",
           .about = R"(Prints for each device the id, name, total and free memory, PCI address and
link, copy engines, and the ways in which gpunbd can access its memory. Large
windows into memory of PCI cards are listed with the user of the card, and
block devices that servers have made with ublk with their process.
)",
           .groups = {{"Flags",
                       {{.name = "--calibrate",
                         .brief = "Also measure copies between host and device",
                         .more =
                             ", and show the chunk size that 'gpunbd serve' would choose. Takes "
                             "a few seconds and some memory of each GPU.",
                         .store = into(calibrate)},
                        json_flag(json, json_details)}}},
           .examples = R"(  gpunbd devices
  gpunbd devices --calibrate
)",
           .ending = R"(Exit codes: 0 done; 1 failed at run time; 2 wrong usage.
See also: gpunbd(8)
)"}) {}

int DevicesCommand::run(const Commands&) { return server::list_devices(calibrate, json); }

}  // namespace gpunbd::tools
