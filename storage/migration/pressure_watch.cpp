#include "storage/migration/pressure_watch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

// Stalls and the time in which they are summed, in microseconds. The kernel requires
// CAP_SYS_RESOURCE for times that are not a multiple of two seconds.
constexpr const char* triggers[] = {"some 150000 1000000", "some 300000 2000000"};

// In a container, the path may be that of the outer system; the container's group is then the root
// of the mount.
std::vector<fs::path> candidates(const fs::path& root) {
    std::vector<fs::path> out{root / "proc/pressure/memory"};
    constexpr std::string_view start = "0::";  // control groups, version 2
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        if (!line.starts_with(start)) continue;
        const fs::path group = fs::path(line.substr(start.size())).relative_path();
        for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"}) {
            out.push_back(root / mount / group / "memory.pressure");
        }
    }
    return out;
}

// Empty, with errno set, on failure.
OwnedFd open_trigger(const fs::path& path) {
    OwnedFd file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!file) return file;
    for (const char* trigger : triggers) {
        // With its null character: the kernel overwrites the last byte.
        if (::write(file.get(), trigger, std::strlen(trigger) + 1) > 0) return file;
        if (errno != EINVAL) break;
    }
    return {};
}

}  // namespace

PressureTriggers open_pressure_triggers(const fs::path& root) {
    PressureTriggers out;
    std::string why;
    for (const fs::path& path : candidates(root)) {
        OwnedFd file = open_trigger(path);
        if (!file) {
            if (why.empty()) why = fmt::format("{}: {}", path.native(), std::strerror(errno));
            continue;
        }
        out.files.push_back(std::move(file));
    }
    if (out.files.empty()) out.why_none = std::move(why);
    return out;
}

PressureWatch::PressureWatch(Device& device, Migrator& migrator, std::vector<OwnedFd> triggers,
                             std::chrono::milliseconds settling_time)
    : device_(device),
      migrator_(migrator),
      settling_time_(settling_time),
      triggers_(std::move(triggers)),
      wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_) throw std::system_error(errno, std::generic_category(), "eventfd");
    polled_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
    for (const OwnedFd& trigger : triggers_) {
        polled_.push_back({.fd = trigger.get(), .events = POLLPRI, .revents = 0});
    }
}

PressureWatch::~PressureWatch() {
    stopping_ = true;
    ::eventfd_write(wake_.get(), 1);
    migrator_.cancel();
    if (thread_.joinable()) thread_.join();
}

void PressureWatch::start() {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "pressure watch");
}

void PressureWatch::run() {
    while (!stopping_) {
        switch (wait()) {
            case Event::pressure:
                reclaim();
                break;
            case Event::quiet:
                return_pages();
                break;
            case Event::none:
                break;
        }
    }
}

PressureWatch::Event PressureWatch::wait() {
    const int timeout = step_ == 0 ? -1 : static_cast<int>(settling_time_.count());
    const int ready = ::poll(polled_.data(), polled_.size(), timeout);
    if (ready == 0) return Event::quiet;
    if (ready < 0) return Event::none;
    Event event = Event::none;
    for (pollfd& each : polled_) {
        if ((each.revents & (POLLERR | POLLNVAL)) != 0) {
            each.fd = -1;  // ignored from now on: its control group has been removed
        } else if ((each.revents & POLLPRI) != 0) {
            event = Event::pressure;
        }
    }
    return event;
}

void PressureWatch::reclaim() {
    const SlabBudget& budget = device_.budget();
    const std::uint64_t used = budget.used();
    if (used == 0) return;
    const std::uint64_t step = std::max(least_step, used / steps);
    if (step_ == 0) {
        const DeviceInfo& info = device_.info();
        log_if_possible([&] {
            LogLine(spdlog::level::info)
                .with("device", info.id)
                .log("{}: programs wait for memory, so pages move to spill memory", info.id);
        });
    }
    step_ = std::max(step_, step);
    const auto result = migrator_.reclaim(step);
    if (result) shortage_log_.report(device_, *result, "programs wait for memory");
}

void PressureWatch::return_pages() {
    shortage_log_.reset();
    if (device_.budget().limit() == SlabBudget::unlimited) {
        step_ = 0;
        return;
    }
    // Half of the free memory at most, so that the return does not cause the next report.
    const std::uint64_t bytes = std::min(step_, device_.free_memory() / 2);
    if (held_ || bytes < least_step) return;
    migrator_.return_pages(bytes);
}

}  // namespace gpunbd::storage
