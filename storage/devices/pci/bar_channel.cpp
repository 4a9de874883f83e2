#include "storage/devices/pci/bar_channel.hpp"

namespace gpunbd::storage {

namespace {

// The CPU makes these copies. One poll does about 0.1 ms of them, so that other clients make
// progress.
constexpr std::uint64_t bar_work_per_poll = 512 << 10;  // bytes stored
constexpr std::uint64_t stores_per_load = 8;            // one load takes as long as so many stores
constexpr std::uint32_t bar_chunk = 64 << 10;           // bytes

ChannelOptions with_chunks(ChannelOptions options) {
    if (options.chunk_size == 0) options.chunk_size = bar_chunk;
    return options;
}

std::uint64_t work_of(const Copy& copy) {
    return copy.kind == Copy::Kind::read ? stores_per_load * copy.length : copy.length;
}

}  // namespace

BarChannel::BarChannel(const ChannelOptions& options, bool write_combined)
    : Channel(with_chunks(options)),
      write_combined_(write_combined),
      memory_(std::make_unique<std::byte[]>(2 * options.pinned)) {
    read_staging_.adopt(memory_.get(), options.pinned);
    write_staging_.adopt(memory_.get() + options.pinned, options.pinned);
}

void BarChannel::progress(CopyQueue& queued) {
    for (std::uint64_t budget = bar_work_per_poll; !queued.empty();) {
        Copy& copy = *queued.pop();
        count(copy.kind == Copy::Kind::read ? PathKind::streaming_load : PathKind::mapping, copy);
        copy.cpu = reinterpret_cast<std::byte*>(copy.address);  // a write has none
        cpu_.add(copy);
        finish(copy, Status::ok);
        const std::uint64_t work = work_of(copy);
        if (work >= budget) return;
        budget -= work;
    }
}

}  // namespace gpunbd::storage
