#include "server/ublk/control.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace gpunbd::server::ublk {

namespace {

constexpr unsigned ring_entries = 4;

std::string open_failure(int error) {
    switch (error) {
        case ENOENT:
        case ENXIO:
        case ENODEV:
            return fmt::format(
                "the kernel has no ublk ({}: {}); load its module with 'modprobe ublk_drv' (Linux "
                "6.5 or later; Debian 12: the package linux-image-6.12-amd64)",
                Control::path, std::strerror(error));
        case EACCES:
        case EPERM:
            return fmt::format(
                "no permission to open {}; run the server as root (in a container or a service: "
                "with this device and CAP_SYS_ADMIN)",
                Control::path);
        default:
            return fmt::format("{}: {}", Control::path, std::strerror(error));
    }
}

std::string ring_failure(int error) {
    if (error == EPERM) {
        return "io_uring is disabled; set the sysctl kernel.io_uring_disabled to 0, or permit "
               "io_uring in the system call filter of the container or the service";
    }
    if (error == ENOSYS) return "the kernel has no io_uring; use Linux 6.5 or later";
    return fmt::format("io_uring: {}", std::strerror(error));
}

constexpr const char* too_old =
    "the kernel's ublk is too old: it lacks UBLK_F_USER_COPY; use Linux 6.5 or later";

bool alive(std::int32_t process) {
    return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

Control::Control() : file_(::open(path, O_RDWR | O_CLOEXEC)) {
    if (!file_) throw std::runtime_error(open_failure(errno));
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SQE128;
    const int result = ::io_uring_queue_init_params(ring_entries, &ring_, &parameters);
    if (result == -EINVAL) throw std::runtime_error(too_old);
    if (result != 0) throw std::runtime_error(ring_failure(-result));
    try {
        check_features();
    } catch (...) {
        ::io_uring_queue_exit(&ring_);
        throw;
    }
}

Control::~Control() { ::io_uring_queue_exit(&ring_); }

void Control::check_features() {
    std::uint64_t features = 0;
    const int result = execute(
        control::get_features,
        {.length = sizeof features, .address = reinterpret_cast<std::uintptr_t>(&features)});
    if (result == -EPERM) throw std::runtime_error(open_failure(EPERM));
    constexpr std::uint64_t needed = feature::user_copy | feature::ioctl_encoding;
    if (result != 0 || (features & needed) != needed) throw std::runtime_error(too_old);
}

int Control::execute(std::uint32_t operation, const ControlCommand& command) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return -EBUSY;
    ::io_uring_prep_rw(IORING_OP_URING_CMD, entry, file_.get(), nullptr, 0, 0);
    entry->cmd_op = operation;
    std::memcpy(entry->cmd, &command, sizeof command);
    for (;;) {
        const int result = ::io_uring_submit_and_wait(&ring_, 1);
        if (result < 0 && result != -EINTR && result != -EAGAIN) return result;
        io_uring_cqe* completion = nullptr;
        if (::io_uring_peek_cqe(&ring_, &completion) != 0) continue;
        const int status = completion->res;
        ::io_uring_cqe_seen(&ring_, completion);
        return status;
    }
}

int Control::add(DeviceInfo& info) {
    return execute(control::add, {.device = info.id,
                                  .length = sizeof info,
                                  .address = reinterpret_cast<std::uintptr_t>(&info)});
}

int Control::set_parameters(std::uint32_t id, const Parameters& parameters) {
    return execute(control::set_parameters,
                   {.device = id,
                    .length = sizeof parameters,
                    .address = reinterpret_cast<std::uintptr_t>(&parameters)});
}

int Control::start(std::uint32_t id) {
    return execute(control::start, {.device = id, .data = static_cast<std::uint64_t>(::getpid())});
}

int Control::start_recovery(std::uint32_t id) {
    return execute(control::start_recovery, {.device = id});
}

int Control::end_recovery(std::uint32_t id) {
    return execute(control::end_recovery,
                   {.device = id, .data = static_cast<std::uint64_t>(::getpid())});
}

int Control::stop(std::uint32_t id) { return execute(control::stop, {.device = id}); }

int Control::remove(std::uint32_t id) { return execute(control::remove, {.device = id}); }

std::optional<DeviceInfo> Control::info(std::uint32_t id) {
    DeviceInfo info;
    const int result = execute(
        control::get_info,
        {.device = id, .length = sizeof info, .address = reinterpret_cast<std::uintptr_t>(&info)});
    if (result != 0) return std::nullopt;
    return info;
}

std::unique_ptr<Control> Control::open_if_permitted() {
    try {
        return std::make_unique<Control>();
    } catch (const std::runtime_error&) {
        return nullptr;
    }
}

std::string reason_unavailable() {
    try {
        const Control control;
        return {};
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

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
