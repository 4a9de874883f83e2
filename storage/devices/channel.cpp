#include "storage/devices/channel.hpp"

#include <algorithm>
#include <cstring>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

// Bytes. A worker makes up to eight polls, 100 us together, before it looks for requests of others.
constexpr std::uint32_t work_per_poll = 128 << 10;
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
    for (std::uint32_t budget = work_per_poll; budget != 0 && !queued.empty();) {
        Copy& copy = *queued.front();
        GPUNBD_ASSERT(copy.kind != Copy::Kind::write && copy.cpu != nullptr,
                      "payload is received into pages without a copy");
        GPUNBD_ASSERT(done_ < copy.length, "a copy that is complete has left the queue");
        const std::uint32_t length = std::min(copy.length - done_, budget);
        if (copy.kind == Copy::Kind::zero) {
            std::memset(copy.cpu + done_, 0, length);
        } else {
            std::memcpy(copy.staging + done_, copy.cpu + done_, length);
        }
        done_ += length;
        budget -= length;
        if (done_ != copy.length) return;
        done_ = 0;
        queued.pop();
        count(PathKind::mapping, copy);
        finish(copy, Status::ok);  // its owner may prepare it again
    }
}

}  // namespace gpunbd::storage
