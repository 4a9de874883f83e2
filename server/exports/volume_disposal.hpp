// Gives the memory of volumes back on a thread of its own: gigabytes take seconds, and the last who
// lets go of an export is the main thread at a reload, or a worker with other clients.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "storage/pages/volume.hpp"

namespace gpunbd::server {

class VolumeDisposal {
 public:
    VolumeDisposal() = default;
    // Waits for what it has been given.
    ~VolumeDisposal();
    VolumeDisposal(const VolumeDisposal&) = delete;
    VolumeDisposal& operator=(const VolumeDisposal&) = delete;

    // A volume that ends here, whoever lets go of it last. This outlives it. Not for several
    // threads at a time.
    std::shared_ptr<storage::Volume> shared(std::unique_ptr<storage::Volume> volume);

 private:
    void take(std::unique_ptr<storage::Volume> volume) noexcept;
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<storage::Volume>> volumes_;
    bool ending_ = false;
    std::thread thread_;  // once there is a volume
};

}  // namespace gpunbd::server
