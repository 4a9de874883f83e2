#include "storage/devices/channels.hpp"

namespace gpunbd::storage {

void Channels::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Channel>& channel = by_number_[device.number()];
    if (channel) return;
    open_.reserve(open_.size() + 1);  // what is open is polled
    auto opened = device.open_channel(options_);
    const std::lock_guard lock(mutex_);
    seen_.emplace_back(&device, opened.get());
    channel = std::move(opened);
    open_.push_back(channel.get());
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
