#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "storage/base/mutex.hpp"
#include "storage/migration/blocking_migrator.hpp"
#include "storage/migration/shortage_log.hpp"

namespace gpunbd::storage {

// Gives revocable memory of a device up while the host has too little memory to take it.
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

// Keeps memory of a device free for other programs: it looks at the free memory, and asks the
// migrator to move pages away when there is too little, and back when there is enough.
class FreeMemoryWatch {
 public:
    using Clock = std::chrono::steady_clock;

    // The time between two looks, and that while another program takes memory.
    static constexpr std::chrono::milliseconds interval{100};
    static constexpr std::chrono::milliseconds falling_interval{5};
    // Pages return after memory has been free for so long.
    static constexpr std::chrono::seconds settling_time{5};

    // The device and the migrator outlive this object.
    FreeMemoryWatch(Device& device, Migrator& migrator) : device_(device), migrator_(migrator) {}
    ~FreeMemoryWatch();
    FreeMemoryWatch(const FreeMemoryWatch&) = delete;
    FreeMemoryWatch& operator=(const FreeMemoryWatch&) = delete;

    // Starts the thread. Throws std::system_error.
    void start();

    // The following may be called from any thread.
    //
    // In bytes; 0: the watch does nothing.
    void set_keep_free(std::uint64_t bytes);
    // While it is held, pages leave but do not return.
    void hold(bool held);

 private:
    void run();
    void free_memory(std::uint64_t missing);
    void return_pages(std::uint64_t surplus);

    Device& device_;
    BlockingMigrator migrator_;
    // Used by the thread only.
    std::optional<Clock::time_point> surplus_since_;
    Clock::time_point next_attempt_;
    ShortageLog shortage_log_;
    std::thread thread_;
    Mutex mutex_;
    Condition changed_;
    std::uint64_t keep_free_ GUARDED_BY(mutex_) = 0;
    bool held_ GUARDED_BY(mutex_) = false;
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace gpunbd::storage
