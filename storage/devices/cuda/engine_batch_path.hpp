// The path for copies that wait together: one copy engine call for up to 32 of them. They end with
// the group of the engine's stream, which EnginePath closes and collects.
#pragma once

#include <cstdint>

#include "storage/devices/cuda/engine_streams.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

class EngineBatchPath final : public CopyPath {
 public:
    // Takes no copies if the driver does not have the call.
    EngineBatchPath(const DeviceState& state, EngineStreams& streams, std::uint32_t chunk_size);

    // The call has failed on this machine: takes no copies from now on.
    void disable() { longest_ = 0; }

    bool has_room(const Copy& copy) override { return !streams_.of(copy.kind).full(); }
    bool add(Copy& copy) override;

 private:
    EngineStreams& streams_;
};

}  // namespace gpunbd::storage::cuda
