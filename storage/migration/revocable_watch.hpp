// Gives revocable memory of a device up while the host has too little memory to take it.
#pragma once

#include <chrono>
#include <thread>

#include "storage/base/mutex.hpp"
#include "storage/migration/blocking_migrator.hpp"
#include "storage/migration/shortage_log.hpp"

namespace gpunbd::storage {

class RevocableWatch {
 public:
    // The time between two looks at DeviceUse::revocable_excess.
    static constexpr std::chrono::seconds usual_interval{1};

    // The device and the migrator outlive this object.
    RevocableWatch(Device& device, Migrator& migrator,
                   std::chrono::milliseconds interval = usual_interval)
        : device_(device), migrator_(migrator), interval_(interval) {}
    ~RevocableWatch();
    RevocableWatch(const RevocableWatch&) = delete;
    RevocableWatch& operator=(const RevocableWatch&) = delete;

    // Starts the thread. Throws std::system_error.
    void start();

 private:
    void run();
    void look();

    Device& device_;
    BlockingMigrator migrator_;
    const std::chrono::milliseconds interval_;
    ShortageLog shortage_log_;  // used by the thread only
    std::thread thread_;
    Mutex mutex_;
    Condition changed_;
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::storage
