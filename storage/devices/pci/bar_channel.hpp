// A channel to a BAR: the CPU copies with wide non-temporal stores and loads.
#pragma once

#include <cstddef>
#include <memory>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/cpu_path.hpp"

namespace gpunbd::storage {

class BarChannel final : public Channel {
 public:
    // With write-combining, writes are received in place. Reads are never sent in place, since the
    // kernel's plain loads take ten times as long.
    BarChannel(const ChannelOptions& options, bool write_combined);

    bool receives_into(const Slab&, std::uint32_t) const override { return write_combined_; }

 protected:
    void progress(CopyQueue& queued) override;

 private:
    const bool write_combined_;
    std::unique_ptr<std::byte[]> memory_;
    CpuPath cpu_;
};

}  // namespace gpunbd::storage
