#include "server/exports/volume_disposal.hpp"

#include <new>
#include <utility>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

VolumeDisposal::Holder::~Holder() {
    if (volume) disposal.take(std::move(volume));
    const std::lock_guard lock(disposal.mutex_);
    disposal.holders_.erase(this);
    disposal.changed_
        .notify_all();  // under the lock, since the disposal may be destroyed after the last holder
}

VolumeDisposal::~VolumeDisposal() {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return holders_.empty(); });
        ending_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

std::shared_ptr<storage::Volume> VolumeDisposal::Reservation::share(
    std::unique_ptr<storage::Volume> volume) noexcept {
    storage::Volume* const shared = volume.get();
    {
        const std::lock_guard lock(holder_->disposal.mutex_);
        holder_->volume = std::move(volume);
    }
    return {std::move(holder_), shared};
}

VolumeDisposal::Reservation VolumeDisposal::reserve() {
    if (!thread_.joinable()) {
        const storage::SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    }
    auto holder = std::make_shared<Holder>(*this);
    const std::lock_guard lock(mutex_);
    holders_.emplace(holder.get(), holder);
    return Reservation(std::move(holder));
}

std::vector<std::shared_ptr<storage::Volume>> VolumeDisposal::volumes() const {
    std::vector<std::shared_ptr<storage::Volume>> all;
    std::vector<std::shared_ptr<Holder>> unused;  // destroyed without the lock, which ~Holder takes
    {
        const std::lock_guard lock(mutex_);
        all.reserve(holders_.size());
        unused.reserve(holders_.size());
        for (const auto& [unnamed, each] : holders_) {
            std::shared_ptr<Holder> holder = each.lock();
            if (!holder) continue;
            storage::Volume* const volume = holder->volume.get();
            if (volume == nullptr) {
                unused.push_back(std::move(holder));
            } else {
                all.emplace_back(std::move(holder), volume);
            }
        }
    }
    return all;
}

void VolumeDisposal::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, taken = taken_] { return destroyed_ >= taken; });
}

void VolumeDisposal::take(std::unique_ptr<storage::Volume> volume) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        volumes_.push_back(std::move(volume));
        ++taken_;
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
        const std::size_t count = now.size();
        now.clear();
        lock.lock();
        destroyed_ += count;
        changed_.notify_all();
    }
}

}  // namespace gpunbd::server
