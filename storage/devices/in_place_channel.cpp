#include "storage/devices/in_place_channel.hpp"

#include <cstring>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t zeroed_per_poll = 4 << 20;  // bytes: limits how long other clients wait

}  // namespace

void InPlaceChannel::progress(CopyQueue& queued) {
    for (std::uint64_t budget = zeroed_per_poll; !queued.empty();) {
        Copy& copy = *queued.pop();
        GPUNBD_ASSERT(copy.kind == Copy::Kind::zero && copy.cpu != nullptr,
                      "payload is received into pages and sent from them without a copy");
        count(PathKind::mapping, copy);
        std::memset(copy.cpu, 0, copy.length);
        finish(copy, Status::ok);
        if (copy.length >= budget) return;
        budget -= copy.length;
    }
}

}  // namespace gpunbd::storage
