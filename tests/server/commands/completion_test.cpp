// The scripts for lists of drivers that this program does not have. tests/config/completion_test.py
// runs the scripts in the shells.
#include "config/devices/device_drivers.hpp"
#include "server/commands/commands.hpp"
#include "server/tools/completion/scripts.hpp"
#include "tests/test.hpp"

namespace gpunbd::tools {
namespace {

using config::DriverInfo;
using gpunbd::test::contains;

// The line of the script about the values of --device.
std::string device_line(std::string_view shell, std::vector<DriverInfo> drivers) {
    std::vector<DriverInfo> before = config::device_drivers();
    config::set_device_drivers(std::move(drivers));
    const std::string script = completion_script(shell, server::all_commands());
    config::set_device_drivers(std::move(before));
    const std::size_t at = script.find(shell == "fish"  ? "-l device "
                                       : shell == "zsh" ? "--device="
                                                        : ":--device)");
    REQUIRE(at != std::string::npos);
    return script.substr(at, script.find('\n', at) - at);
}

const DriverInfo plain{.scheme = "disk", .form = "disk:NAME"};
const DriverInfo counted{.scheme = "gpu", .form = "gpu:N", .device_files = "/dev/gpu"};
// Its form contains that of the other.
const DriverInfo longer{.scheme = "vgpu", .form = "vgpu:N", .device_files = "/dev/vgpu"};
const DriverInfo omitted{.scheme = "card", .form = "card:N", .completed = false};

TEST_CASE("completion: --device offers the ids of all drivers") {
    const std::vector<DriverInfo> drivers{counted, plain, longer, omitted};
    CHECK(contains(device_line("bash", drivers),
                   R"-(words='auto '"$(_gpunbd_count gpu /dev/gpu)"' disk:NAME )-"
                   R"-('"$(_gpunbd_count vgpu /dev/vgpu)"'')-"));
    CHECK(contains(device_line("zsh", drivers),
                   R"(:ID: _gpunbd_count auto disk\:NAME = gpu /dev/gpu vgpu /dev/vgpu')"));
    CHECK(contains(device_line("fish", drivers),
                   "-a 'auto (__gpunbd_count gpu /dev/gpu) disk:NAME "
                   "(__gpunbd_count vgpu /dev/vgpu)'"));
}

TEST_CASE("completion: --device without a driver that has device files") {
    CHECK(contains(device_line("bash", {plain}), "words='auto disk:NAME'"));
    CHECK(contains(device_line("zsh", {plain}), R"(:ID:(auto disk\:NAME)')"));
    CHECK(contains(device_line("fish", {plain}), "-a 'auto disk:NAME'"));
}

}  // namespace
}  // namespace gpunbd::tools
