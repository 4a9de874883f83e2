#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/admin/model/status.hpp"
#include "storage/base/mutex.hpp"
#include "storage/migration/free_memory_watch.hpp"
#include "storage/migration/migrator.hpp"
#include "storage/migration/pressure_watch.hpp"

namespace gpunbd::server {

// What administrators have claimed of the memory that exports use on one device. Claims add up, and
// the end of one leaves the others in effect. Thread-safe.
struct Claim {
    using Clock = std::chrono::steady_clock;

    std::uint64_t id = 0;
    std::string owner = {};
    std::optional<std::uint64_t> asked = {};            // bytes; unset: all
    std::optional<std::chrono::seconds> duration = {};  // unset: until it is ended
    Clock::time_point begun = Clock::now();
    // Set by Claims:
    std::uint64_t bytes = 0;
    std::uint64_t withheld = 0;  // by which the limit is lower; at least `bytes`
};

// Amounts are in bytes.
class Claims {
 public:
    // Adds a claim of `claim.asked`, or of all that exports use here if it is unset.
    // `in_use`: what exports use and may use now. Returns by how much their limit has to fall.
    std::uint64_t begin(Claim claim, std::uint64_t in_use);
    // What a claim has done. If it lowered what is in use by less than it wanted, it is so much
    // smaller. If clients had freed memory, the limit was above what is in use, and fell by more:
    // the end of the claim raises it by that. A claim that has lowered nothing, although it wanted
    // to, ends. Returns whether the claim is in effect.
    struct Effect {
        std::uint64_t wanted = 0;
        std::uint64_t lowered = 0;  // below what is in use
        std::uint64_t limit_fell = 0;
    };
    bool set_effect(std::uint64_t id, const Effect& effect);
    // Ends a claim, or all of them. Returns by how much the limit may rise; unset: to any amount,
    // because no claim is left.
    std::optional<std::uint64_t> end(std::optional<std::uint64_t> id);

    bool contains(std::uint64_t id) const;
    std::vector<ClaimStatus> list(Claim::Clock::time_point now = Claim::Clock::now()) const;

 private:
    // What exports may use of base_.
    std::uint64_t left() const REQUIRES(mutex_);

    mutable Mutex mutex_;
    // What exports used when the first of the claims began.
    std::uint64_t base_ GUARDED_BY(mutex_) = 0;
    std::vector<Claim> claims_ GUARDED_BY(mutex_);
};

// Gives memory of devices back to other programs: as much as an administrator asks for, as much as
// the configuration keeps free, and host memory while programs wait for memory.
class Reclaimer {
 public:
    using Volumes = storage::Migrator::Volumes;
    // Called on a thread of the device.
    using Done = std::function<void(const ReclaimStatus&)>;

    // `volumes` is called on several threads.
    Reclaimer(std::function<Volumes()> volumes, const storage::MigratorOptions& options);

    // Serves the devices of the present volumes that have spill memory or revocable memory, too,
    // and keeps as much of them free as these options say. Throws std::system_error if there is no
    // thread for it.
    void update(const std::vector<config::DeviceOptions>& options);
    // Each device opens what it needs to move pages; its future then becomes ready, with the
    // exception std::runtime_error if that fails.
    std::vector<std::future<void>> prepare();
    // The ids of the devices that can be reclaimed.
    std::vector<std::string> devices() const;
    // Gives memory of the device back until end(). Claims add up. `claim`: its id, owner, amount
    // and times. `done` is destroyed without a call if this object is. Returns false if there is no
    // such device.
    bool reclaim(std::string_view device, const Claim& claim, Done done);
    // Ends one claim of the device, or all, and moves pages back as far as the others and the
    // memory allow it. Requests are served in their order.
    bool end(std::string_view device, std::optional<std::uint64_t> claim, Done done);
    // The following: on the thread that calls reclaim().
    //
    // The devices with this claim, or where it is going to begin.
    std::vector<std::string> devices_of(std::uint64_t claim) const;
    // The claims of the device that were begun and not forgotten.
    using Ids = std::set<std::uint64_t>;
    Ids claims_on(std::string_view device) const;
    // These have ended: pages may return if no other claim is left.
    void forget(std::string_view device, const Ids& ended);
    // The counters of the device of this id, if it is served.
    void add_to(DeviceStatus& status) const;
    // Ends all threads until the next update(). Pages on their way arrive before.
    void stop();

 private:
    struct DeviceReclaim {
        DeviceReclaim(storage::Device& its_device, const std::function<Volumes()>& volumes,
                      const storage::MigratorOptions& options)
            : device(its_device),
              migrator(its_device, volumes, options),
              watch(its_device, migrator) {}

        // While held, pages do not return.
        void hold(bool held);

        storage::Device& device;
        storage::Migrator migrator;
        storage::FreeMemoryWatch watch;  // ends before the migrator
        // As well:
        std::optional<storage::PressureWatch> pressure;    // of system memory only
        std::optional<storage::RevocableWatch> revocable;  // if memory is revocable
        std::uint64_t keep_free = 0;                       // bytes
    };

    DeviceReclaim* find(std::string_view device) const;
    std::shared_ptr<Claims> claims_of(std::string_view device);
    void add(storage::Device& device);
    static void watch_pressure(DeviceReclaim& device);

    const std::function<Volumes()> volumes_;
    const storage::MigratorOptions options_;
    // By device: the claims that were begun and not forgotten. Pages do not return meanwhile.
    std::map<std::string, Ids, std::less<>> held_;
    mutable Mutex mutex_;
    std::map<std::string, std::shared_ptr<DeviceReclaim>, std::less<>> devices_
        GUARDED_BY(mutex_);  // by id
    std::map<std::string, std::shared_ptr<Claims>, std::less<>> claims_
        GUARDED_BY(mutex_);  // by device
};

}  // namespace gpunbd::server
