#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "storage/devices/channel.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/stream_counter.hpp"

namespace gpunbd::storage::cuda {

// Builds one copy engine call for many copies (cuMemcpyBatchAsync).
class EngineBatch {
 public:
    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == max; }

    // `zeroes` is the source for a Copy::Kind::zero.
    void add(const Copy& copy, const std::byte* zeroes);
    // Starts everything that was added and clears the batch. After a failure it is unknown which
    // copies were started.
    CUresult start(DeviceState::MemcpyBatch call, cudaStream_t stream);

 private:
    static constexpr std::size_t max =
        32;  // in longer batches, the first copies would wait too long

    std::size_t count_ = 0;
    std::array<CUdeviceptr, max> to_{};
    std::array<CUdeviceptr, max> from_{};
    std::array<std::size_t, max> lengths_{};
};

// The copy engine streams, one each for reads, writes and zeroes. Both engine paths use them. What
// they start between two completion words is one group.
class EngineStream {
 public:
    // `word`: see StreamCounter. Throws std::runtime_error.
    EngineStream(DeviceState& state, std::uint32_t* word);
    EngineStream(const EngineStream&) = delete;
    EngineStream& operator=(const EngineStream&) = delete;
    ~EngineStream();

    cudaStream_t stream() const { return counter_.stream(); }
    bool full() const { return counter_.full(); }
    bool idle() const { return counter_.idle(); }
    const Copy* oldest() const { return counter_.oldest(); }

    // Adds a copy to the open group, if not full(). The caller starts it on stream() and then calls
    // added(), or start() starts it with others.
    void add(Copy& copy) { counter_.open().push(copy); }
    void add_to_batch(Copy& copy);
    // The group has `bytes` more. Closes it if that makes `enough`, or if its batch is full.
    void added(std::uint32_t bytes, std::uint32_t enough);
    // Starts the batch, and requests the completion word of the open group if it has any copies.
    void close();

    bool take_ended(CopyQueue& ended);
    void take_all(CopyQueue& all);

 private:
    void start_batch();

    DeviceState& state_;
    StreamCounter counter_;
    EngineBatch batch_;
    std::uint32_t open_bytes_ = 0;  // in the open group
};

class EngineStreams {
 public:
    static constexpr std::size_t count = 3;

    // Throws std::runtime_error.
    EngineStreams(DeviceState& state, const std::array<std::uint32_t*, count>& words)
        : streams_{EngineStream(state, words[0]), EngineStream(state, words[1]),
                   EngineStream(state, words[2])} {}

    EngineStream& of(Copy::Kind kind) { return streams_[static_cast<std::size_t>(kind)]; }
    auto begin() { return streams_.begin(); }
    auto end() { return streams_.end(); }
    auto begin() const { return streams_.begin(); }
    auto end() const { return streams_.end(); }

 private:
    std::array<EngineStream, count> streams_;  // by Copy::Kind
};

}  // namespace gpunbd::storage::cuda
