#include "storage/lanes.hpp"

#include <utility>

namespace gpunbd::storage {

void Lanes::open(Device& device) {
    if (by_number_.size() <= device.number()) by_number_.resize(device.number() + 1);
    std::unique_ptr<Lane>& lane = by_number_[device.number()];
    if (lane) return;
    lane = device.open_lane(options_);
    open_.push_back(lane.get());
}

void Lanes::resume_deferred() {
    for (Deferred* work = std::exchange(deferred_, nullptr); work != nullptr;) {
        Deferred& next = *std::exchange(work, work->next_);
        next.resume();
    }
}

}  // namespace gpunbd::storage
