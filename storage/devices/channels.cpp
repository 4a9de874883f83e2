#include "storage/devices/channels.hpp"

namespace gpunbd::storage {

void Channels::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Channel>& channel = by_number_[device.number()];
    if (channel) return;
    channel = device.open_channel(options_);
    open_.push_back(channel.get());
}

void Channels::resume_deferred() {
    // One that has more to do defers itself again, and waits for the next poll.
    DeferredQueue now;
    now.swap(deferred_);
    while (!now.empty()) {
        Deferred& next = now.front();
        now.pop_front();
        next.resume();
    }
}

}  // namespace gpunbd::storage
