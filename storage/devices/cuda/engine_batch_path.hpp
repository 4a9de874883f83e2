// The path by a copy engine for copies that wait together: one call for up to 32 of them. They end
// with the group of their engine's stream, which EnginePath closes and collects.
#pragma once

#include <cstdint>

#include "storage/devices/cuda/engine_streams.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

class EngineBatchPath final : public CopyPath {
 public:
    // Takes no copies where the driver has no such call.
    EngineBatchPath(const DeviceState& state, EngineStreams& streams, std::uint32_t chunk_size);

    // It has been tried, and does not work here: takes no copies from now on.
    void give_up() { longest_ = 0; }

    bool has_place(const Copy& copy) override { return !streams_.of(copy.kind).full(); }
    bool add(Copy& copy) override;

 private:
    EngineStreams& streams_;
};

}  // namespace gpunbd::storage::cuda
