#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <vector>

#include "storage/cuda/cuda_device.hpp"
#include "storage/cuda/cuda_device_class.hpp"
#include "storage/cuda/cuda_lane.hpp"
#include "storage/cuda/meter.hpp"

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

// A slab and a lane for the time of the calibration.
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
        lane_.reset();
        device_.release(slab_);
    }

    bool mapped() const { return slab_.cpu != nullptr; }
    double us(Path path, const Round& round, std::chrono::microseconds budget) {
        if (lane_ == nullptr) {
            const LaneOptions options{.chunk_size = chunk_sizes.back(), .pinned = in_flight};
            lane_ = device_.open_cuda_lane(options, only(path));
        }
        lane_->set_policy(only(path));
        return Meter(slab_, *lane_).median_us(round, budget);
    }

 private:
    CudaDevice& device_;
    Slab slab_;
    std::unique_ptr<CudaLane> lane_;
};

// One line of the table: what a round of copies costs on each path, in microseconds.
struct Costs {
    std::uint32_t bytes = 0;
    std::optional<double> by_cpu;  // through the mapping
    double engine = 0;
    double kernel = 0;
    double resident = 0;
    double engine_crowd = 0;
    double kernel_crowd = 0;
    double resident_crowd = 0;
};

std::vector<Costs> measure(Bench& bench, Copy::Kind kind) {
    std::vector<Costs> table;
    const Path by_cpu = kind == Copy::Kind::read ? Path::streaming_load : Path::mapping;
    for (const std::uint32_t bytes : sizes) {
        const Round one{.kind = kind, .bytes = bytes, .copies = 1};
        const Round many{.kind = kind, .bytes = bytes, .copies = crowd};
        Costs costs;
        costs.bytes = bytes;
        if (bench.mapped()) costs.by_cpu = bench.us(by_cpu, one, per_latency);
        costs.engine = bench.us(Path::copy_engine, one, per_latency);
        costs.kernel = bench.us(Path::kernel, one, per_latency);
        costs.resident = bench.us(Path::resident, one, per_latency);
        costs.engine_crowd = bench.us(Path::copy_engine, many, per_latency);
        costs.kernel_crowd = bench.us(Path::kernel, many, per_latency);
        costs.resident_crowd = bench.us(Path::resident, many, per_latency);
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
    const auto add = [&](std::uint8_t loads, std::uint32_t limit, Path path) {
        if (limit != 0) policy.rows.push_back({direction, loads, limit, path});
    };
    const auto cpu_limit = [&](auto other) {
        return up_to(table, [&](const Costs& costs) {
            return costs.by_cpu.has_value() && *costs.by_cpu <= other(costs);
        });
    };
    if (direction == Direction::write) {
        // Received there by the socket call itself: no other path can save that copy.
        add(Policy::any_load, longest_for_mapping, Path::mapping);
    } else {
        const Path path = direction == Direction::read ? Path::streaming_load : Path::mapping;
        add(alone, cpu_limit([](const Costs& c) {
                return std::min({c.engine, c.kernel, c.resident});
            }),
            path);
        add(crowded, cpu_limit([](const Costs& c) { return std::min(c.kernel, c.resident); }),
            path);
    }
    add(alone,
        up_to(table, [](const Costs& c) { return c.resident <= std::min(c.engine, c.kernel); }),
        Path::resident);
    add(crowded,
        up_to(table,
              [](const Costs& c) {
                  return c.resident_crowd <= std::min(c.engine_crowd, c.kernel_crowd);
              }),
        Path::resident);
    add(alone, up_to(table, [](const Costs& c) { return c.kernel <= c.engine; }), Path::kernel);
    add(crowded, up_to(table, [](const Costs& c) { return c.kernel_crowd <= c.engine_crowd; }),
        Path::kernel);
    add(Policy::any_load, Policy::any_size, Path::copy_engine);
}

std::string to_text(const char* title, const std::vector<Costs>& table) {
    std::string text = fmt::format("{:<6} {:>8}  {:>9} {:>9} {:>9} {:>9}  {:>10} {:>10} {:>11}\n",
                                   title, "bytes", "CPU, us", "engine", "kernel", "resident",
                                   "engine x8", "kernel x8", "resident x8");
    for (const Costs& costs : table) {
        text += fmt::format(
            "{:<6} {:>8}  {:>9} {:>9.1f} {:>9.1f} {:>9.1f}  {:>10.1f} {:>10.1f} {:>11.1f}\n", "",
            costs.bytes, costs.by_cpu ? fmt::format("{:.1f}", *costs.by_cpu) : std::string("-"),
            costs.engine, costs.kernel, costs.resident, costs.engine_crowd, costs.kernel_crowd,
            costs.resident_crowd);
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
            rates[k][i] = in_flight / bench.us(Path::copy_engine, round, per_chunk_size) / 1e3;
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
