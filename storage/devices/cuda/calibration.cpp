#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "storage/devices/cuda/cuda_channel.hpp"
#include "storage/devices/cuda/cuda_device_class.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/cuda/meter.hpp"
#include "storage/devices/gpu/calibrated_policy.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::uint32_t kib = 1 << 10;
constexpr std::uint32_t mib = 1 << 20;
constexpr std::array sizes{512U,     1 * kib,  2 * kib,  4 * kib,   8 * kib,
                           16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib};
constexpr std::array chunk_sizes{256 * kib, 512 * kib, 1 * mib, 2 * mib, 4 * mib};
constexpr std::uint32_t crowd = 8;             // copies that wait at once
constexpr std::uint32_t in_flight = 16 * mib;  // bytes, for every chunk size
constexpr std::uint64_t slab_bytes = 64 << 20;
constexpr std::chrono::microseconds per_latency(2'000);
constexpr std::chrono::microseconds per_chunk_size(12'000);

// A slab and a channel for the duration of the calibration.
class Bench {
 public:
    explicit Bench(CudaDevice& device) : device_(device) {
        if (device.allocate({.bytes = slab_bytes}, slab_) != Status::ok) {
            throw std::runtime_error(
                fmt::format("{}: not enough memory for the calibration", device.info().id));
        }
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        channel_.reset();
        device_.release(slab_);
    }

    bool mapped() const { return slab_.cpu != nullptr; }
    bool has_engine_batch() const { return device_.has_engine_batch(); }
    double us(PathKind path, const Round& round, std::chrono::microseconds budget) {
        if (channel_ == nullptr) {
            const Policy policy = only(path);
            channel_ = device_.open_cuda_channel(
                {.chunk_size = chunk_sizes.back(), .pinned = in_flight, .policy = &policy});
        }
        channel_->set_policy(only(path));
        const double us = Meter(slab_, *channel_).median_us(round, budget);
        disturbed_ |= !device_.kernels_allowed();
        return us;
    }
    // Another program computed on the GPU meanwhile, so the cost of kernels is unknown.
    bool disturbed() const { return disturbed_; }

 private:
    CudaDevice& device_;
    Slab slab_;
    std::unique_ptr<CudaChannel> channel_;
    bool disturbed_ = false;
};

std::vector<CopyCosts> measure_costs(Bench& bench, Copy::Kind kind) {
    std::vector<CopyCosts> table;
    const PathKind by_cpu = kind == Copy::Kind::read ? PathKind::streaming_load : PathKind::mapping;
    for (const std::uint32_t bytes : sizes) {
        const Round one{.kind = kind, .bytes = bytes, .copies = 1};
        const Round many{.kind = kind, .bytes = bytes, .copies = crowd};
        CopyCosts costs;
        costs.bytes = bytes;
        if (bench.mapped()) costs.by_cpu = bench.us(by_cpu, one, per_latency);
        costs.engine = bench.us(PathKind::copy_engine, one, per_latency);
        costs.kernel = bench.us(PathKind::kernel, one, per_latency);
        costs.persistent = bench.us(PathKind::persistent_kernel, one, per_latency);
        costs.engine_crowd = bench.us(PathKind::copy_engine, many, per_latency);
        if (bench.has_engine_batch()) {
            costs.batch_crowd = bench.us(PathKind::engine_batch, many, per_latency);
        }
        costs.kernel_crowd = bench.us(PathKind::kernel, many, per_latency);
        costs.persistent_crowd = bench.us(PathKind::persistent_kernel, many, per_latency);
        table.push_back(costs);
    }
    return table;
}

std::vector<ChunkRates> measure_rates(Bench& bench) {
    std::vector<ChunkRates> table;
    for (const std::uint32_t bytes : chunk_sizes) {
        const auto rate = [&](Copy::Kind kind) {
            const Round round{.kind = kind, .bytes = bytes, .copies = in_flight / bytes};
            return in_flight / bench.us(PathKind::copy_engine, round, per_chunk_size) / 1e3;
        };
        const double read = rate(Copy::Kind::read);
        table.push_back({.bytes = bytes, .read = read, .write = rate(Copy::Kind::write)});
    }
    return table;
}

}  // namespace

std::string CudaDevice::calibrate() {
    Bench bench(*this);
    Calibration found;
    std::string text;
    found.policy.rows.clear();
    const auto add = [&](Direction direction, Copy::Kind kind, const char* title) {
        const std::vector<CopyCosts> table = measure_costs(bench, kind);
        add_rows(found.policy, direction, table);
        text += to_text(title, table);
    };
    add(Direction::read, Copy::Kind::read, "read");
    add(Direction::write, Copy::Kind::write, "write");
    add(Direction::zero, Copy::Kind::zero, "zero");
    if (bench.disturbed()) {
        found.policy = default_policy();
        text +=
            "kernels could not be timed (gpu_use, or another program that computes on the\n"
            "GPU): the policy is that of an H200\n";
    }
    const std::vector<ChunkRates> rates = measure_rates(bench);
    found.chunk_size = choose_chunk_size(rates);
    text += to_text(rates);
    text += "policy\n" + to_text(found.policy);
    text += fmt::format("chunk size: {} KiB\n", found.chunk_size / kib);
    calibration_ = found;
    // A disturbed measurement is not saved, so that the next process measures again.
    const bool lasts = !bench.disturbed() || options_.gpu_use == GpuUse::copy_engines;
    calibration_state_ = lasts ? saved(calibration_, circumstances()) : std::string();
    return text;
}

bool CudaDevice::restore_calibration(std::string_view state) {
    const std::optional<Calibration> found = read_calibration(state, circumstances());
    if (!found) return false;
    calibration_ = *found;
    calibration_state_ = state;
    return true;
}

std::string CudaDevice::circumstances() const {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "the version of the driver cannot be determined");
    return fmt::format("{}, {}, driver {}, {}, gpu_use {}", info_.name, info_.link, driver,
                       state_.mapped ? "mapped" : "not mapped", to_text(options_.gpu_use));
}

}  // namespace gpunbd::storage::cuda
