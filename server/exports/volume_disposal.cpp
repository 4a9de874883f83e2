#include "server/exports/volume_disposal.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

VolumeDisposal::Holder::~Holder() {
    if (volume) disposal.take(std::move(volume));
    const Lock lock(disposal.mutex_);
    disposal.holders_.erase(this);
    // Under the lock, since the disposal may be destroyed after the last holder.
    disposal.changed_.notify_all();
}

VolumeDisposal::~VolumeDisposal() {
    {
        const Lock lock(mutex_);
        while (!holders_.empty()) changed_.wait(mutex_);
        ending_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

std::shared_ptr<storage::Volume> VolumeDisposal::Reservation::share(
    std::unique_ptr<storage::Volume> volume) noexcept {
    GPUNBD_ASSERT(holder_ != nullptr, "a reservation is for one volume");
    GPUNBD_ASSERT(volume != nullptr, "a volume is shared when it exists");
    storage::Volume* const shared = volume.get();
    {
        const Lock lock(holder_->disposal.mutex_);
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
    const Lock lock(mutex_);
    GPUNBD_ASSERT(!ending_, "no volume is made while the server ends");
    holders_.emplace(holder.get(), holder);
    return Reservation(std::move(holder));
}

std::vector<std::shared_ptr<storage::Volume>> VolumeDisposal::volumes() const {
    std::vector<std::shared_ptr<storage::Volume>> all;
    std::vector<std::shared_ptr<Holder>> unused;  // destroyed without the lock, which ~Holder takes
    {
        const Lock lock(mutex_);
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
    const Lock lock(mutex_);
    const std::uint64_t taken = taken_;
    while (destroyed_ < taken) changed_.wait(mutex_);
}

bool VolumeDisposal::writes_origins() const {
    const Lock lock(mutex_);
    return writing_ != 0;
}

void VolumeDisposal::take(std::unique_ptr<storage::Volume> volume) noexcept {
    try {
        const bool writes = volume->writes_to_source();
        const Lock lock(mutex_);
        volumes_.push_back(std::move(volume));
        writing_ += writes ? 1 : 0;
        ++taken_;
        changed_.notify_all();
    } catch (const std::bad_alloc&) {
        // Destroy it here.
    }
}

void VolumeDisposal::run() {
    const Lock lock(mutex_);
    for (;;) {
        while (!ending_ && volumes_.empty()) changed_.wait(mutex_);
        if (volumes_.empty()) return;
        auto now = std::exchange(volumes_, {});
        const std::size_t count = now.size();
        const auto writing =
            std::ranges::count_if(now, [](const auto& each) { return each->writes_to_source(); });
        {
            const Unlock unlock(mutex_);
            now.clear();
        }
        destroyed_ += count;
        writing_ -= static_cast<std::size_t>(writing);
        GPUNBD_ASSERT(destroyed_ <= taken_, "a volume is destroyed after its last owner is gone");
        changed_.notify_all();
    }
}

}  // namespace gpunbd::server
