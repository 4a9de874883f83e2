#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/devices/channel.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/gpu/gpu_channel.hpp"
#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// The policy and the chunk size. The defaults suit one H200.
struct Calibration {
    Policy policy = default_policy();
    std::uint32_t chunk_size = 1 << 20;  // bytes: the smallest that reaches the speed of the link
};

// The options of a channel with the chunk size of the calibration, unless they have one. Without
// their policy, which need not outlive the call that opens the channel.
ChannelOptions tuned(const ChannelOptions& options, const Calibration& calibration);

// Saves the result of a calibration as text, so that a later process need not measure again.
// `circumstances`: one line that describes what the result is valid for.
std::string saved(const Calibration& calibration, std::string_view circumstances);
// Empty: the result is for other circumstances, or the text is not exactly as saved() writes it.
std::optional<Calibration> read_calibration(std::string_view text, std::string_view circumstances);

// Copies that are enqueued together and awaited together.
struct Round {
    Copy::Kind kind = Copy::Kind::read;
    std::uint32_t bytes = 0;  // of each copy
    std::uint32_t copies = 1;
};

// Measures copies through a channel, for calibration and benchmarks.
class Meter final : private CopyOwner {
 public:
    // The slab and the channel outlive this object, which takes staging memory of the channel as
    // needed.
    Meter(const Slab& slab, Channel& channel);

    // The median duration of a round in microseconds, measured for `budget`. Each round uses other
    // locations of the slab. Throws std::runtime_error if a copy fails.
    double median_us(const Round& round, std::chrono::microseconds budget);

 private:
    void copy_done(Copy& copy) override;
    void run(const Round& round, std::byte* staging);

    const Slab& slab_;
    Channel& channel_;
    std::vector<Copy> copies_;
    std::vector<double> durations_;
    std::uint64_t place_ = 0;  // the offset in the slab, in bytes
    std::uint32_t pending_ = 0;
    bool failed_ = false;
};

// The device to measure. Everything outlives the measurement.
struct CalibratedDevice {
    Device& device;
    std::function<std::unique_ptr<GpuChannel>(const ChannelOptions&)> open_channel;
    std::function<bool()> kernels_allowed;
    // The paths that the driver has.
    bool kernel = true;
    bool persistent_kernel = false;
    bool engine_batch = false;
};

// Measures the copy paths of a GPU, for any driver.
struct MeasuredCalibration {
    Calibration calibration;
    std::string text;  // human-readable
    // Kernels could not be timed, for example because another program computed on the GPU, and the
    // policy is the default one.
    bool disturbed = false;
};

// Takes about a second. Throws std::runtime_error.
MeasuredCalibration measure_calibration(const CalibratedDevice& device);

}  // namespace gpunbd::storage
