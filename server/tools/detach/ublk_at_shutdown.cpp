#include "server/tools/detach/ublk_at_shutdown.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "server/base/exit_code.hpp"
#include "server/base/machine_shutdown.hpp"
#include "server/tools/attach/dismantling.hpp"
#include "server/tools/attach/repeated_failure.hpp"
#include "server/tools/client/failure.hpp"
#include "server/ublk/abandoned.hpp"
#include "server/ublk/control.hpp"
#include "server/ublk/parameters.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::tools {

namespace {

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

}  // namespace

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

}  // namespace gpunbd::tools
