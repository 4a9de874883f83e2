#include "storage/devices/channels.hpp"

#include <utility>

namespace gpunbd::storage {

void Channels::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Channel>& channel = by_number_[device.number()];
    if (channel) return;
    channel = device.open_channel(options_);
    open_.push_back(channel.get());
}

void Channels::resume_deferred() {
    for (Deferred* work = std::exchange(deferred_, nullptr); work != nullptr;) {
        Deferred& next = *std::exchange(work, work->next_);
        next.resume();
    }
}

}  // namespace gpunbd::storage
