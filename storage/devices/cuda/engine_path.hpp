#pragma once

#include <cstdint>

#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/engine_streams.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

// The path for copies that wait together: one copy engine call for up to 32 of them. They end with
// the group of the engine's stream, which EnginePath closes and collects.
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

// The copy engine path, which takes every copy: one call for each, or several if it is longer than
// a chunk.
class EnginePath final : public CopyPath {
 public:
    // Also collects what other paths add to the streams. All arguments outlive the path.
    EnginePath(DeviceState& state, EngineStreams& streams, std::uint32_t chunk_size)
        : CopyPath(any_length), state_(state), streams_(streams), chunk_size_(chunk_size) {}

    bool has_room(const Copy& copy) override { return !streams_.of(copy.kind).full(); }
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override;
    bool idle() const override;
    void check_errors() override;
    void take_all(CopyQueue& all) override;

 private:
    cudaError_t start(const Copy& copy, cudaStream_t stream) const;

    DeviceState& state_;
    EngineStreams& streams_;
    std::uint32_t chunk_size_;
};

}  // namespace gpunbd::storage::cuda
