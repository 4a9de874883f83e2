#include "storage/devices/channels.hpp"

#include <exception>

#include "storage/base/log_line.hpp"

namespace gpunbd::storage {

void Channels::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Channel>& channel = by_number_[device.number()];
    if (channel) return;
    open_.reserve(open_.size() + 1);  // push_back() below must not throw
    auto opened = device.open_channel(options_);
    Snapshot next;
    next.reserve(open_.size() + 1);  // nothing is allocated under the lock
    const Lock lock(mutex_);
    next.assign(snapshot_.begin(), snapshot_.end());
    next.emplace_back(&device, opened.get());
    snapshot_.swap(next);
    channel = std::move(opened);
    open_.push_back(channel.get());
}

Channel* Channels::open_late(Device& device) noexcept {
    try {
        open(device);
        return &to(device);
    } catch (const std::exception& error) {
        if (std::exchange(has_failed_, true)) return nullptr;
        log_if_possible([&] {
            LogLine(spdlog::level::err)
                .with("device", device.info().id)
                .log("{}: requests fail, since no channel can be opened: {}", device.info().id,
                     error.what());
        });
        return nullptr;
    }
}

Channels::Snapshot Channels::snapshot() const {
    Snapshot out;
    for (std::size_t room = 8;; room *= 2) {
        out.reserve(room);
        const Lock lock(mutex_);
        if (snapshot_.size() > room) continue;
        out.assign(snapshot_.begin(), snapshot_.end());
        return out;
    }
}

void Channels::resume_one() {
    DeferredQueue& client = deferred_.front();
    deferred_.pop_front();
    if (client.works_.empty()) return;  // they have been cancelled
    DeferredWork& work = client.works_.front();
    client.works_.pop_front();
    if (!client.works_.empty()) deferred_.push_back(client);
    work.resume();  // may defer itself again
}

}  // namespace gpunbd::storage
