#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <vector>

#include "storage/devices/cuda/cuda_channel.hpp"
#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_device_class.hpp"
#include "storage/devices/cuda/meter.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::uint32_t kib = 1 << 10;
constexpr std::uint32_t mib = 1 << 20;
constexpr std::array sizes{512U,     1 * kib,  2 * kib,  4 * kib,   8 * kib,
                           16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib};
constexpr std::array chunk_sizes{256 * kib, 512 * kib, 1 * mib, 2 * mib, 4 * mib};
constexpr std::uint32_t crowd = 8;             // copies that wait at once
constexpr std::uint32_t in_flight = 16 * mib;  // bytes, whatever the chunk size
constexpr std::uint64_t slab_bytes = 64 << 20;
constexpr double fast_enough = 0.85;  // of the best chunk size's throughput
constexpr std::chrono::microseconds per_latency(2'000);
constexpr std::chrono::microseconds per_chunk_size(12'000);

// A slab and a channel for the time of the calibration.
class Bench {
 public:
    explicit Bench(CudaDevice& device) : device_(device) {
        if (device.allocate(slab_bytes, Provision::thin, slab_) != Status::ok) {
            throw std::runtime_error(
                fmt::format("{}: no memory is left to calibrate with", device.info().id));
        }
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        channel_.reset();
        device_.release(slab_);
    }

    bool mapped() const { return slab_.cpu != nullptr; }
    double us(CopyPath path, const Round& round, std::chrono::microseconds budget) {
        if (channel_ == nullptr) {
            const ChannelOptions options{.chunk_size = chunk_sizes.back(), .pinned = in_flight};
            channel_ = device_.open_cuda_channel(options, only(path));
        }
        channel_->set_policy(only(path));
        return Meter(slab_, *channel_).median_us(round, budget);
    }

 private:
    CudaDevice& device_;
    Slab slab_;
    std::unique_ptr<CudaChannel> channel_;
};

// One line of the table: what a round of copies costs on each path, in microseconds.
struct Costs {
    std::uint32_t bytes = 0;
    std::optional<double> by_cpu;  // through the mapping
    double engine = 0;
    double kernel = 0;
    double persistent = 0;
    double engine_crowd = 0;
    double kernel_crowd = 0;
    double persistent_crowd = 0;
};

std::vector<Costs> measure(Bench& bench, Copy::Kind kind) {
    std::vector<Costs> table;
    const CopyPath by_cpu = kind == Copy::Kind::read ? CopyPath::streaming_load : CopyPath::mapping;
    for (const std::uint32_t bytes : sizes) {
        const Round one{.kind = kind, .bytes = bytes, .copies = 1};
        const Round many{.kind = kind, .bytes = bytes, .copies = crowd};
        Costs costs;
        costs.bytes = bytes;
        if (bench.mapped()) costs.by_cpu = bench.us(by_cpu, one, per_latency);
        costs.engine = bench.us(CopyPath::copy_engine, one, per_latency);
        costs.kernel = bench.us(CopyPath::kernel, one, per_latency);
        costs.persistent = bench.us(CopyPath::persistent_kernel, one, per_latency);
        costs.engine_crowd = bench.us(CopyPath::copy_engine, many, per_latency);
        costs.kernel_crowd = bench.us(CopyPath::kernel, many, per_latency);
        costs.persistent_crowd = bench.us(CopyPath::persistent_kernel, many, per_latency);
        table.push_back(costs);
    }
    return table;
}

// The size up to which `wins` holds without a gap; 0: not even for the smallest.
template <class Wins>
std::uint32_t up_to(const std::vector<Costs>& table, Wins wins) {
    std::uint32_t limit = 0;
    for (const Costs& costs : table) {
        if (!wins(costs)) break;
        limit = costs.bytes;
    }
    return limit;
}

void add_rows(Policy& policy, Direction direction, const std::vector<Costs>& table) {
    constexpr std::uint8_t alone = Policy::on(Load::alone);
    constexpr std::uint8_t crowded = Policy::on(Load::busy) | Policy::on(Load::several);
    const auto add = [&](std::uint8_t loads, std::uint32_t limit, CopyPath path) {
        if (limit != 0) policy.rows.push_back({direction, loads, limit, path});
    };
    const auto cpu_limit = [&](auto other) {
        return up_to(table, [&](const Costs& costs) {
            return costs.by_cpu.has_value() && *costs.by_cpu <= other(costs);
        });
    };
    if (direction == Direction::write) {
        // Received there by the socket call itself: no other path can save that copy.
        add(Policy::any_load, max_for_mapping, CopyPath::mapping);
    } else {
        const CopyPath path =
            direction == Direction::read ? CopyPath::streaming_load : CopyPath::mapping;
        add(alone, cpu_limit([](const Costs& c) {
                return std::min({c.engine, c.kernel, c.persistent});
            }),
            path);
        add(crowded, cpu_limit([](const Costs& c) { return std::min(c.kernel, c.persistent); }),
            path);
    }
    add(alone,
        up_to(table, [](const Costs& c) { return c.persistent <= std::min(c.engine, c.kernel); }),
        CopyPath::persistent_kernel);
    add(crowded,
        up_to(table,
              [](const Costs& c) {
                  return c.persistent_crowd <= std::min(c.engine_crowd, c.kernel_crowd);
              }),
        CopyPath::persistent_kernel);
    add(alone, up_to(table, [](const Costs& c) { return c.kernel <= c.engine; }), CopyPath::kernel);
    add(crowded, up_to(table, [](const Costs& c) { return c.kernel_crowd <= c.engine_crowd; }),
        CopyPath::kernel);
    add(Policy::any_load, Policy::any_size, CopyPath::copy_engine);
}

std::string to_text(const char* title, const std::vector<Costs>& table) {
    std::string text = fmt::format("{:<6} {:>8}  {:>9} {:>9} {:>9} {:>9}  {:>10} {:>10} {:>11}\n",
                                   title, "bytes", "CPU, us", "engine", "kernel", "persistent",
                                   "engine x8", "kernel x8", "persistent x8");
    for (const Costs& costs : table) {
        text += fmt::format(
            "{:<6} {:>8}  {:>9} {:>9.1f} {:>9.1f} {:>9.1f}  {:>10.1f} {:>10.1f} {:>11.1f}\n", "",
            costs.bytes, costs.by_cpu ? fmt::format("{:.1f}", *costs.by_cpu) : std::string("-"),
            costs.engine, costs.kernel, costs.persistent, costs.engine_crowd, costs.kernel_crowd,
            costs.persistent_crowd);
    }
    return text;
}

// The shortest chunks that come close to the best throughput in both directions: short ones keep
// the pipeline full and others waiting less.
std::uint32_t choose_chunk_size(Bench& bench, std::string& text) {
    std::array<std::array<double, chunk_sizes.size()>, 2> rates{};
    constexpr std::array kinds{Copy::Kind::read, Copy::Kind::write};
    text += fmt::format("{:<6} {:>8}  {:>9} {:>9}\n", "chunks", "KiB", "read GB/s", "write");
    for (std::size_t i = 0; i < chunk_sizes.size(); ++i) {
        for (std::size_t k = 0; k < kinds.size(); ++k) {
            const Round round{
                .kind = kinds[k], .bytes = chunk_sizes[i], .copies = in_flight / chunk_sizes[i]};
            rates[k][i] = in_flight / bench.us(CopyPath::copy_engine, round, per_chunk_size) / 1e3;
        }
        text += fmt::format("{:<6} {:>8}  {:>9.1f} {:>9.1f}\n", "", chunk_sizes[i] / kib,
                            rates[0][i], rates[1][i]);
    }
    for (std::size_t i = 0; i < chunk_sizes.size(); ++i) {
        const bool fast = std::all_of(rates.begin(), rates.end(), [&](const auto& of_kind) {
            return of_kind[i] >= fast_enough * *std::max_element(of_kind.begin(), of_kind.end());
        });
        if (fast) return chunk_sizes[i];
    }
    return chunk_sizes.back();
}

}  // namespace

CalibrationResult calibrate_cuda_device(Device& device) {
    auto& cuda_device = dynamic_cast<CudaDevice&>(device);
    Bench bench(cuda_device);
    CalibrationResult result;
    const auto add = [&](Direction direction, Copy::Kind kind, const char* title) {
        const std::vector<Costs> table = measure(bench, kind);
        add_rows(result.policy, direction, table);
        result.table += to_text(title, table);
    };
    add(Direction::read, Copy::Kind::read, "read");
    add(Direction::write, Copy::Kind::write, "write");
    add(Direction::zero, Copy::Kind::zero, "zero");
    result.chunk_size = choose_chunk_size(bench, result.table);
    result.table += "policy\n" + to_text(result.policy);
    result.table += fmt::format("chunk size: {} KiB\n", result.chunk_size / kib);
    cuda_device.tune(result.policy, result.chunk_size);
    return result;
}

}  // namespace gpunbd::storage::cuda
