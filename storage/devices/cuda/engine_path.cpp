#include "storage/devices/cuda/engine_path.hpp"

#include <algorithm>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::uint32_t batch_bytes = 256 << 10;  // a group of this size is closed

// Batches are not split into chunks, and their zeroes come from pinned memory.
std::uint32_t longest_in_batch(std::uint32_t chunk_size) {
    return std::min<std::uint32_t>(chunk_size, DeviceState::zeroes_bytes);
}

constexpr std::uint32_t group_bytes = 64 << 10;  // a group of this size is closed

}  // namespace

EngineBatchPath::EngineBatchPath(const DeviceState& state, EngineStreams& streams,
                                 std::uint32_t chunk_size)
    : CopyPath(state.memcpy_batch == nullptr ? 0 : longest_in_batch(chunk_size)),
      streams_(streams) {}

bool EngineBatchPath::add(Copy& copy) {
    EngineStream& engine = streams_.of(copy.kind);
    engine.add_to_batch(copy);
    engine.added(copy.length, batch_bytes);
    return false;
}

bool EnginePath::add(Copy& copy) {
    EngineStream& engine = streams_.of(copy.kind);
    use_device(state_.ordinal);
    engine.add(copy);
    const cudaError_t error = start(copy, engine.stream());
    if (error != cudaSuccess) refuse(copy, error, state_, engine.stream());
    engine.added(std::min(copy.length, group_bytes), group_bytes);
    return false;
}

cudaError_t EnginePath::start(const Copy& copy, cudaStream_t stream) const {
    cudaError_t error = cudaSuccess;
    for (std::uint32_t at = 0; at < copy.length && error == cudaSuccess;) {
        const std::uint32_t part = std::min(copy.length - at, chunk_size_);
        std::byte* const device = reinterpret_cast<std::byte*>(copy.address) + at;
        switch (copy.kind) {
            case Copy::Kind::read:
                error = cudaMemcpyAsync(copy.staging + at, device, part, cudaMemcpyDeviceToHost,
                                        stream);
                break;
            case Copy::Kind::write:
                error = cudaMemcpyAsync(device, copy.staging + at, part, cudaMemcpyHostToDevice,
                                        stream);
                break;
            case Copy::Kind::zero:
                error = state_.zero(device, part, stream);
                break;
        }
        at += part;
    }
    return error;
}

void EnginePath::submit() {
    for (EngineStream& engine : streams_) engine.close();
}

bool EnginePath::take_ended(CopyQueue& ended) {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](EngineStream& engine) { return engine.take_ended(ended); });
}

bool EnginePath::idle() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const EngineStream& engine) { return engine.idle(); });
}

void EnginePath::check_errors() {
    for (const EngineStream& engine : streams_) ask(state_, engine.stream(), engine.oldest());
}

void EnginePath::take_all(CopyQueue& all) {
    for (EngineStream& engine : streams_) engine.take_all(all);
}

}  // namespace gpunbd::storage::cuda
