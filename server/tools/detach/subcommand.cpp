#include "server/tools/detach/subcommand.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "server/tools/attach/attach_process.hpp"
#include "server/tools/attach/detachment.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/client/failure.hpp"
#include "server/ublk/control.hpp"
#include "server/ublk/parameters.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::tools {

namespace {

// Unmounts the ublk devices of gpunbd while the machine shuts down. systemd would unmount local
// file systems only after the server has ended.

using namespace server;

constexpr auto retry_interval = std::chrono::seconds(1);

// systemd runs even privileged commands of a unit with restrictions in a mount namespace of their
// own, where unmounting would have no effect on the machine. Call it before the process has other
// threads, for example those of an io_uring.
std::optional<Failure> enter_namespace_of_machine() {
    constexpr const char* path = "/proc/1/ns/mnt";
    const OwnedFd space(::open(path, O_RDONLY | O_CLOEXEC));
    if (!space || ::setns(space.get(), CLONE_NEWNS) != 0) return failure(path, errno);
    return std::nullopt;
}

std::optional<Failure> release_all(ublk::Control& control) {
    std::optional<Failure> first;
    for (const std::uint32_t id : ublk::existing_ids()) {
        const auto info = control.info(id);
        if (!info || !ublk::Mark(info->mark).is_gpunbd()) continue;
        auto failed = attach::dismantle(fmt::format("ublkb{}", id));
        if (failed && !first) first = std::move(failed);
    }
    return first;
}

// Does nothing if the machine continues to run. Tries again each second, up to this time, while
// programs use the devices; prints the reasons. Returns the exit status. Needs CAP_SYS_ADMIN and
// CAP_SYS_CHROOT, and enters the mount namespace of process 1.
int release_ublk_at_shutdown(std::chrono::seconds patience) {
    if (!machine_is_shutting_down()) return 0;
    if (const auto failed = enter_namespace_of_machine()) {
        fmt::print(stderr, "gpunbd detach: {}\n", failed->text);
        return exit_failure;
    }
    const auto control = ublk::Control::open_if_permitted();
    if (!control) return 0;
    const auto end = std::chrono::steady_clock::now() + patience;
    attach::RepeatedFailure reported;
    for (;;) {
        const auto failed = release_all(*control);
        if (!failed) return 0;
        if (reported.is_new(failed->text)) {
            fmt::print(stderr, "gpunbd detach: {} (retried each second)\n", failed->text);
        }
        if (std::chrono::steady_clock::now() + retry_interval > end) return exit_failure;
        std::this_thread::sleep_for(retry_interval);
    }
}

}  // namespace

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
