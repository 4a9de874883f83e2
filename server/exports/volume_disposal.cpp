#include "server/exports/volume_disposal.hpp"

#include <new>
#include <utility>

#include "storage/signals_blocked.hpp"

namespace gpunbd::server {

VolumeDisposal::~VolumeDisposal() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

std::shared_ptr<storage::Volume> VolumeDisposal::shared(std::unique_ptr<storage::Volume> volume) {
    if (!thread_.joinable()) {
        const storage::SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    }
    return {volume.release(),
            [this](storage::Volume* last) { take(std::unique_ptr<storage::Volume>(last)); }};
}

void VolumeDisposal::take(std::unique_ptr<storage::Volume> volume) noexcept {
    try {
        {
            const std::lock_guard lock(mutex_);
            volumes_.push_back(std::move(volume));
        }
        changed_.notify_one();
    } catch (const std::bad_alloc&) {
        // Then it ends here and now.
    }
}

void VolumeDisposal::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || !volumes_.empty(); });
        if (volumes_.empty()) return;
        auto now = std::exchange(volumes_, {});
        lock.unlock();
        now.clear();
        lock.lock();
    }
}

}  // namespace gpunbd::server
