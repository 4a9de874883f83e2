#include "storage/devices/channel.hpp"

#include <algorithm>
#include <cstring>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t work_per_poll = 4 << 20;  // bytes: limits how long other clients wait
// Enough for many clients that are slow to take what they read.
constexpr std::size_t staging_bytes = 2 << 20;
constexpr std::uint32_t longest_staged = 64 << 10;  // bytes

}  // namespace

InPlaceChannel::InPlaceChannel(const ChannelOptions& options)
    : Channel(options), memory_(std::min(options_.pinned, staging_bytes)) {
    read_staging_.assign(memory_.data(), memory_.size());
    staged_bytes_ = std::min(options_.chunk_size, longest_staged);
}

void InPlaceChannel::progress(CopyQueue& queued) {
    for (std::uint64_t budget = work_per_poll; !queued.empty();) {
        Copy& copy = *queued.pop();
        GPUNBD_ASSERT(copy.kind != Copy::Kind::write && copy.cpu != nullptr,
                      "payload is received into pages without a copy");
        count(PathKind::mapping, copy);
        if (copy.kind == Copy::Kind::zero) {
            std::memset(copy.cpu, 0, copy.length);
        } else {
            std::memcpy(copy.staging, copy.cpu, copy.length);
        }
        const std::uint32_t length = copy.length;
        finish(copy, Status::ok);  // its owner may prepare it again
        if (length >= budget) return;
        budget -= length;
    }
}

}  // namespace gpunbd::storage
