#include "storage/devices/cuda/engine_batch_path.hpp"

#include <algorithm>

namespace gpunbd::storage::cuda {

namespace {

constexpr std::uint32_t batch_bytes = 256 << 10;  // a group of this size is closed

// Batches are not split into chunks, and their zeroes come from pinned memory.
std::uint32_t longest_in_batch(std::uint32_t chunk_size) {
    return std::min<std::uint32_t>(chunk_size, DeviceState::zeroes_bytes);
}

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

}  // namespace gpunbd::storage::cuda
