// A worker's way to a BAR: the CPU copies, by wide stores and loads that pass its caches by.
#pragma once

#include <cstddef>
#include <memory>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/cpu_path.hpp"

namespace gpunbd::storage {

class BarChannel final : public Channel {
 public:
    // Where stores are combined, writes are received in place. Reads are never sent from there: the
    // kernel's plain loads take ten times as long.
    BarChannel(const ChannelOptions& options, bool write_combined);

    bool receives_into(const Slab&, std::uint32_t) const override { return write_combined_; }
    bool sends_from(const Slab&, std::uint32_t) const override { return false; }

 protected:
    void progress(CopyQueue& queued) override;

 private:
    const bool write_combined_;
    std::unique_ptr<std::byte[]> memory_;
    CpuPath cpu_;
};

}  // namespace gpunbd::storage
