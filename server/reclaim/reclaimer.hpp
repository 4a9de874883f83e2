// Gives memory of devices back to other programs: as much as an administrator asks for, as much as
// the configuration keeps free, and host memory while programs wait for memory.
#pragma once

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
#include "server/reclaim/claims.hpp"
#include "storage/base/mutex.hpp"
#include "storage/migration/free_memory_watch.hpp"
#include "storage/migration/migrator.hpp"
#include "storage/migration/pressure_watch.hpp"
#include "storage/migration/revocable_watch.hpp"

namespace gpunbd::server {

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
