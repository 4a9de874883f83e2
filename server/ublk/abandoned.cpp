#include "server/ublk/abandoned.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

namespace gpunbd::server::ublk {

namespace {

bool alive(std::int32_t process) {
    return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

std::string block_path(std::uint32_t id) { return fmt::format("/dev/ublkb{}", id); }

std::string character_path(std::uint32_t id) { return fmt::format("/dev/ublkc{}", id); }

std::vector<std::uint32_t> existing_ids() {
    constexpr std::string_view prefix = "ublkb";
    std::vector<std::uint32_t> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
        const std::string name = entry.path().filename();
        std::uint32_t id = 0;
        if (name.starts_with(prefix) &&
            std::from_chars(name.data() + prefix.size(), name.data() + name.size(), id).ec ==
                std::errc{}) {
            out.push_back(id);
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

bool in_use(std::uint32_t id) {
    const OwnedFd exclusive(::open(block_path(id).c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
    return !exclusive && errno != ENOENT && errno != ENXIO && errno != ENODEV;
}

bool has_server(std::uint32_t id) {
    const OwnedFd device(::open(character_path(id).c_str(), O_RDWR | O_CLOEXEC));
    return !device && errno == EBUSY;
}

std::optional<DeviceInfo> settled_info(Control& control, std::uint32_t id, bool leaves) {
    const auto limit = std::chrono::steady_clock::now() + settling_patience;
    for (;;) {
        std::optional<DeviceInfo> found = control.info(id);
        if (!found || found->state != DeviceState::live ||
            std::chrono::steady_clock::now() > limit || (alive(found->server) && !leaves)) {
            return found;
        }
        std::this_thread::sleep_for(settling_interval);
    }
}

int remove_abandoned(Control& control, std::uint32_t id) {
    control.stop(id);  // a device that was never started cannot be stopped
    return control.remove(id);
}

}  // namespace gpunbd::server::ublk
