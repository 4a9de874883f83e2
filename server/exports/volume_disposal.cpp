#include "server/exports/volume_disposal.hpp"

#include <new>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

VolumeDisposal::Holder::Holder(VolumeDisposal& its_disposal) : disposal(its_disposal) {
    const std::lock_guard lock(disposal.mutex_);
    ++disposal.holders_;
}

VolumeDisposal::Holder::~Holder() {
    if (volume) disposal.take(std::move(volume));
    const std::lock_guard lock(disposal.mutex_);
    --disposal.holders_;
    disposal.changed_
        .notify_all();  // under the lock, since the disposal may be destroyed after the last holder
}

VolumeDisposal::~VolumeDisposal() {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return holders_ == 0; });
        ending_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

std::shared_ptr<storage::Volume> VolumeDisposal::Reservation::share(
    std::unique_ptr<storage::Volume> volume) noexcept {
    storage::Volume* const shared = volume.get();
    holder_->volume = std::move(volume);
    return {std::move(holder_), shared};
}

VolumeDisposal::Reservation VolumeDisposal::reserve() {
    if (!thread_.joinable()) {
        const storage::SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    }
    return Reservation(std::make_shared<Holder>(*this));
}

void VolumeDisposal::take(std::unique_ptr<storage::Volume> volume) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        volumes_.push_back(std::move(volume));
        changed_.notify_all();
    } catch (const std::bad_alloc&) {
        // Destroy it here.
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
