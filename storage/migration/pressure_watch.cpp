#include "storage/migration/pressure_watch.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

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
