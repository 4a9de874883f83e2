#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "storage/base/owned_fd.hpp"
#include "storage/migration/blocking_migrator.hpp"
#include "storage/migration/shortage_log.hpp"

namespace gpunbd::storage {

// Descriptors by which the kernel reports that programs wait for memory (pressure stall
// information).
struct PressureTriggers {
    // poll() returns POLLPRI for each of them after programs have waited for 15% of a second or
    // two, and POLLERR when it will report nothing any more.
    std::vector<OwnedFd> files;
    std::string why_none;  // not empty: why there are no files
};

// Of the system and of this process's control group. `root`: where /proc and /sys are found.
PressureTriggers open_pressure_triggers(const std::filesystem::path& root);

// Gives memory of the host back while programs wait for memory: each report of the kernel moves a
// share of the pages away, and they return gradually after the reports have ended.
class PressureWatch {
 public:
    // So much moves at a time, or an eighth of what the exports use if that is more.
    static constexpr std::uint64_t least_step = 64 << 20;  // bytes
    static constexpr unsigned steps = 8;
    static constexpr std::chrono::seconds usual_settling_time{10};

    // `triggers`: those of open_pressure_triggers(). After each `settling_time` without a report,
    // a step returns. The device and the migrator outlive this object. Throws std::system_error.
    PressureWatch(Device& device, Migrator& migrator, std::vector<OwnedFd> triggers,
                  std::chrono::milliseconds settling_time = usual_settling_time);
    ~PressureWatch();
    PressureWatch(const PressureWatch&) = delete;
    PressureWatch& operator=(const PressureWatch&) = delete;

    // Starts the thread. Throws std::system_error.
    void start();

    // From any thread. While it is held, pages leave but do not return.
    void hold(bool held) { held_ = held; }

 private:
    enum class Event : std::uint8_t { pressure, quiet, none };

    void run();
    Event wait();
    void reclaim();
    void return_pages();

    Device& device_;
    BlockingMigrator migrator_;
    const std::chrono::milliseconds settling_time_;
    const std::vector<OwnedFd> triggers_;
    const OwnedFd wake_;
    std::atomic<bool> held_{false};
    std::atomic<bool> stopping_{false};
    // Used by the thread only.
    std::vector<pollfd> polled_;
    std::uint64_t step_ = 0;  // bytes; 0: no pages wait for their return
    ShortageLog shortage_log_;
    std::thread thread_;
};

}  // namespace gpunbd::storage
