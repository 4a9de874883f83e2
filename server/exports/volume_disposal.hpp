// Destroys volumes on its own thread. Freeing gigabytes takes seconds, and the last owner of an
// export is the main thread at a reload or a worker with other clients. It also lists all volumes
// that exist, with an export or without.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

class VolumeDisposal {
    struct Holder;

 public:
    VolumeDisposal() = default;
    // Waits for all shared volumes, including those that other threads still own.
    ~VolumeDisposal();
    VolumeDisposal(const VolumeDisposal&) = delete;
    VolumeDisposal& operator=(const VolumeDisposal&) = delete;

    // Reserves what share() needs, so that it cannot fail.
    class Reservation {
     public:
        // The volume is destroyed on the disposal's thread, whichever thread drops its last
        // reference.
        std::shared_ptr<storage::Volume> share(std::unique_ptr<storage::Volume> volume) noexcept;

     private:
        friend VolumeDisposal;
        explicit Reservation(std::shared_ptr<Holder> holder) : holder_(std::move(holder)) {}
        std::shared_ptr<Holder> holder_;
    };
    // One thread at a time. Throws if memory or threads run out.
    Reservation reserve();
    // Both in one step. A volume that cannot be shared is destroyed here.
    std::shared_ptr<storage::Volume> shared(std::unique_ptr<storage::Volume> volume) {
        return reserve().share(std::move(volume));
    }
    // All shared volumes that have an owner. Any thread; does not wait for a volume to be
    // destroyed.
    std::vector<std::shared_ptr<storage::Volume>> volumes() const;
    // Waits until the volumes that had lost their last owner before this call are destroyed.
    void wait();
    // Whether some of these are still writing to their origin.
    bool writes_origins() const;

 private:
    struct Holder {
        explicit Holder(VolumeDisposal& its_disposal) : disposal(its_disposal) {}
        ~Holder();
        Holder(const Holder&) = delete;
        Holder& operator=(const Holder&) = delete;

        VolumeDisposal& disposal;
        std::unique_ptr<storage::Volume> volume;  // with the lock of the disposal held
    };

    void take(std::unique_ptr<storage::Volume> volume) noexcept;
    void run();

    mutable Mutex mutex_;
    Condition changed_;
    std::vector<std::unique_ptr<storage::Volume>> volumes_ GUARDED_BY(mutex_);  // to destroy
    std::uint64_t taken_ GUARDED_BY(mutex_) = 0;      // volumes, since the start
    std::uint64_t destroyed_ GUARDED_BY(mutex_) = 0;  // of these
    std::map<const Holder*, std::weak_ptr<Holder>> holders_ GUARDED_BY(mutex_);
    std::size_t writing_ GUARDED_BY(mutex_) = 0;  // of those that are not destroyed yet
    bool ending_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // started with the first volume
};

}  // namespace gpunbd::server
