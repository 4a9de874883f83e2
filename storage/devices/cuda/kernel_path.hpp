#pragma once

#include <array>
#include <cstdint>

#include "storage/devices/cuda/copy_kernel.hpp"
#include "storage/devices/cuda/cuda_memory.hpp"
#include "storage/devices/cuda/device_state.hpp"
#include "storage/devices/cuda/stream_counter.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

// A tiny kernel, launched alone, for the watch that looks for other programs on the GPU.
// For one thread.
class KernelProbe {
 public:
    // `state` outlives this object. Throws std::runtime_error.
    explicit KernelProbe(DeviceState& state);

    bool launch();
    bool ended() const;

 private:
    DeviceState& state_;
    PinnedMemory word_;
    DeviceMemory scratch_;
    Stream stream_;  // destroyed first
    std::uint32_t number_ = 0;
};

// The kernel path: all copies that are added in a round become units of one launch, or of as few as
// possible.
class KernelPath final : public CopyPath {
 public:
    static constexpr std::size_t streams = 4;
    static constexpr std::size_t counters_bytes = streams * 256;

    // `words`: one for each stream, see StreamCounter. `counters`: counters_bytes of zeroed device
    // memory. Both are used by this object only and outlive it. Throws std::runtime_error.
    KernelPath(DeviceState& state, const std::array<std::uint32_t*, streams>& words,
               std::byte* counters);

    // Launches kernels of all sizes and waits for them. Copies 16 bytes between these addresses.
    // Throws std::runtime_error.
    void warm_up(const std::byte* from, std::byte* to);

    bool has_room(const Copy& copy) override;
    bool add(Copy& copy) override;
    void submit() override;
    bool take_ended(CopyQueue& ended) override;
    bool idle() const override;
    void check_errors() override;
    void take_all(CopyQueue& all) override;

 private:
    // A launch in preparation. Its copies are in the stream's open group.
    struct Batch {
        StreamCounter* stream = nullptr;  // null: none in preparation
        std::uint32_t count = 0;
        std::array<CopyUnit, max_copy_units> units{};
    };

    static constexpr std::uint32_t launches_per_stream = 2;  // the second starts as the first ends

    StreamCounter* free_stream();
    void launch();

    DeviceState& state_;
    std::byte* counters_;
    std::array<StreamCounter, streams> streams_;
    Batch batch_;
    CopyQueue refused_;  // copies that could not be started
};

}  // namespace gpunbd::storage::cuda
