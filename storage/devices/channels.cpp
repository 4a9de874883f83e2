#include "storage/devices/channels.hpp"

namespace gpunbd::storage {

void Channels::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Channel>& channel = by_number_[device.number()];
    if (channel) return;
    open_.reserve(open_.size() + 1);  // what is open is polled
    auto opened = device.open_channel(options_);
    Seen next = seen_;
    next.emplace_back(&device, opened.get());
    const std::lock_guard lock(mutex_);
    seen_.swap(next);
    channel = std::move(opened);
    open_.push_back(channel.get());
}

Channels::Seen Channels::seen() const {
    Seen out;
    for (std::size_t room = 8;; room *= 2) {
        out.reserve(room);
        const std::lock_guard lock(mutex_);
        if (seen_.size() > room) continue;
        out.assign(seen_.begin(), seen_.end());
        return out;
    }
}

void Channels::resume_one() {
    DeferredOfClient& client = deferred_.front();
    deferred_.pop_front();
    if (client.works_.empty()) return;  // they have gone meanwhile
    Deferred& work = client.works_.front();
    client.works_.pop_front();
    if (!client.works_.empty()) deferred_.push_back(client);
    work.resume();  // which may defer itself again
}

}  // namespace gpunbd::storage
