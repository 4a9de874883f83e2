#include "storage/devices/gpu/measured_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <vector>

#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view heading = "gpunbd calibration 1";
constexpr std::uint32_t min_chunk = 64 << 10;   // bytes
constexpr std::uint32_t max_chunk = 64U << 20;  // bytes
constexpr std::size_t max_rows = 256;

// Splits a text into lines.
class Lines {
 public:
    explicit Lines(std::string_view text) : rest_(text) {}

    // The next line without its newline. Returns empty texts from the first incomplete line on.
    std::string_view line() {
        const std::size_t end = rest_.find('\n');
        const std::string_view found = rest_.substr(0, end);
        rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
        return end == std::string_view::npos ? std::string_view() : found;
    }
    bool at_end() const { return rest_.empty(); }

 private:
    std::string_view rest_;
};

// Removes one number and the space after it from the start of a line.
std::optional<std::uint32_t> take_number(std::string_view& line) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc{}) return std::nullopt;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (!line.empty()) {
        if (line[0] != ' ' || line.size() == 1) return std::nullopt;
        line.remove_prefix(1);
    }
    return value;
}

std::optional<Policy::Row> row_of(std::string_view line) {
    const auto direction = take_number(line);
    const auto loads = take_number(line);
    const auto up_to = take_number(line);
    const auto path = take_number(line);
    const bool sound = direction && *direction <= static_cast<unsigned>(Direction::zero) && loads &&
                       *loads != 0 && *loads <= Policy::any_load && up_to && *up_to != 0 && path &&
                       *path <= static_cast<unsigned>(PathKind::kernel) && line.empty();
    if (!sound) return std::nullopt;
    const bool reads = static_cast<Direction>(*direction) == Direction::read;
    const PathKind others = reads ? PathKind::mapping : PathKind::streaming_load;
    if (static_cast<PathKind>(*path) == others) return std::nullopt;
    return Policy::Row{static_cast<Direction>(*direction), static_cast<std::uint8_t>(*loads),
                       *up_to, static_cast<PathKind>(*path)};
}

constexpr std::uint32_t warm_up_rounds = 2;
constexpr std::size_t max_rounds = 100'000;
constexpr std::uint64_t stride = 1 << 20;  // bytes between consecutive copies
constexpr std::uint64_t spread =
    4096;  // one more page per stride, so that offsets within a stride differ

constexpr std::uint32_t kib = 1 << 10;
constexpr std::uint32_t mib = 1 << 20;
constexpr std::array sizes{512U,     1 * kib,  2 * kib,  4 * kib,   8 * kib,
                           16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib};
constexpr std::array chunk_sizes{256 * kib, 512 * kib, 1 * mib, 2 * mib, 4 * mib};
constexpr std::uint32_t crowd = 8;             // copies that wait at once
constexpr std::uint32_t in_flight = 16 * mib;  // bytes, for every chunk size
constexpr std::uint64_t slab_bytes = 64 << 20;
constexpr double never = std::numeric_limits<double>::infinity();  // us, of a missing path
constexpr std::chrono::microseconds per_latency(2'000);
constexpr std::chrono::microseconds per_chunk_size(12'000);

// A slab and a channel for the duration of the calibration.
class Bench {
 public:
    explicit Bench(const CalibratedDevice& measured) : measured_(measured) {
        if (device().allocate({.bytes = slab_bytes, .fixed = true}, slab_) != Status::ok) {
            throw std::runtime_error(
                fmt::format("{}: not enough memory for the calibration", device().info().id));
        }
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        channel_.reset();
        device().release(slab_);
    }

    bool mapped() const { return slab_.cpu != nullptr; }
    const CalibratedDevice& measured() const { return measured_; }
    double us(PathKind path, const Round& round, std::chrono::microseconds budget) {
        if (channel_ == nullptr) {
            const Policy policy = only(path);
            channel_ = measured_.open_channel(
                {.chunk_size = chunk_sizes.back(), .pinned = in_flight, .policy = &policy});
        }
        channel_->set_policy(only(path));
        const double us = Meter(slab_, *channel_).median_us(round, budget);
        disturbed_ |= !measured_.kernels_allowed();
        return us;
    }
    // Another program computed on the GPU meanwhile, so the cost of kernels is unknown.
    bool disturbed() const { return disturbed_; }

 private:
    Device& device() const { return measured_.device; }

    const CalibratedDevice& measured_;
    Slab slab_;
    std::unique_ptr<GpuChannel> channel_;
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
        const CalibratedDevice& has = bench.measured();
        const auto us = [&](bool exists, PathKind path, const Round& round) {
            return exists ? bench.us(path, round, per_latency) : never;
        };
        costs.engine = us(true, PathKind::copy_engine, one);
        costs.kernel = us(has.kernel, PathKind::kernel, one);
        costs.persistent = us(has.persistent_kernel, PathKind::persistent_kernel, one);
        costs.engine_crowd = us(true, PathKind::copy_engine, many);
        if (has.engine_batch) costs.batch_crowd = us(true, PathKind::engine_batch, many);
        costs.kernel_crowd = us(has.kernel, PathKind::kernel, many);
        costs.persistent_crowd = us(has.persistent_kernel, PathKind::persistent_kernel, many);
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

ChannelOptions tuned(const ChannelOptions& options, const Calibration& calibration) {
    ChannelOptions out = options;
    if (out.chunk_size == 0) {
        // One client may hold half of the staging memory, which should keep all its slots busy.
        const std::uint64_t max = out.pinned / 2 / out.slots;
        out.chunk_size =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(calibration.chunk_size, max));
    }
    out.policy = nullptr;
    return out;
}

std::string saved(const Calibration& calibration, std::string_view circumstances) {
    std::string text = fmt::format("{}\n{}\n{}\n", heading, circumstances, calibration.chunk_size);
    for (const Policy::Row& row : calibration.policy.rows) {
        text += fmt::format("{} {} {} {}\n", static_cast<unsigned>(row.direction), row.loads,
                            row.up_to, static_cast<unsigned>(row.path));
    }
    return text;
}

std::optional<Calibration> read_calibration(std::string_view text, std::string_view circumstances) {
    Lines lines(text);
    if (lines.line() != heading || lines.line() != circumstances) return std::nullopt;
    std::string_view line = lines.line();
    const auto chunk = take_number(line);
    const bool power_of_two = chunk && (*chunk & (*chunk - 1)) == 0;
    if (!power_of_two || !line.empty() || *chunk < min_chunk || *chunk > max_chunk) {
        return std::nullopt;
    }
    Calibration found{.policy = {}, .chunk_size = *chunk};
    while (!lines.at_end()) {
        const auto row = row_of(lines.line());
        if (!row || found.policy.rows.size() == max_rows) return std::nullopt;
        found.policy.rows.push_back(*row);
    }
    // Accept only what saved() writes.
    if (found.policy.rows.empty() || saved(found, circumstances) != text) return std::nullopt;
    return found;
}

Meter::Meter(const Slab& slab, Channel& channel) : slab_(slab), channel_(channel) {
    durations_.reserve(max_rounds);
}

void Meter::copy_done(Copy& copy) {
    --pending_;
    failed_ |= copy.status != Status::ok;
}

void Meter::run(const Round& round, std::byte* staging) {
    pending_ = round.copies;
    for (std::uint32_t i = 0; i < round.copies; ++i) {
        Copy& copy = copies_[i];
        place_ = (place_ + stride + spread) % (slab_.bytes - round.bytes) & ~(spread - 1);
        copy.prepare(round.kind, round.bytes, slab_.address + place_,
                     slab_.cpu == nullptr ? nullptr : slab_.cpu + place_,
                     staging == nullptr ? nullptr : staging + std::size_t{i} * round.bytes, *this);
        channel_.enqueue(copy);
    }
    while (pending_ != 0) channel_.poll();
}

double Meter::median_us(const Round& round, std::chrono::microseconds budget) {
    using Clock = std::chrono::steady_clock;
    copies_.resize(round.copies);
    durations_.clear();
    StagingArena& arena =
        round.kind == Copy::Kind::write ? channel_.write_staging() : channel_.read_staging();
    std::size_t held = 0;
    const std::size_t needed = std::size_t{round.bytes} * round.copies;
    std::byte* const staging = round.kind == Copy::Kind::zero ? nullptr : arena.take(needed, held);
    if (staging == nullptr && round.kind != Copy::Kind::zero) {
        throw std::runtime_error("a timed round exceeds the staging memory");
    }
    for (std::uint32_t i = 0; i < warm_up_rounds; ++i) run(round, staging);
    const Clock::time_point end = Clock::now() + budget;
    for (Clock::time_point begin = Clock::now(); begin < end && durations_.size() < max_rounds;) {
        run(round, staging);
        const Clock::time_point now = Clock::now();
        durations_.push_back(std::chrono::duration<double, std::micro>(now - begin).count());
        begin = now;
    }
    if (staging != nullptr) arena.give_back(staging, needed, held);
    if (failed_) throw std::runtime_error("a timed copy failed");
    const auto middle = durations_.begin() + static_cast<std::ptrdiff_t>(durations_.size() / 2);
    std::nth_element(durations_.begin(), middle, durations_.end());
    return *middle;
}

MeasuredCalibration measure_calibration(const CalibratedDevice& device) {
    Bench bench(device);
    MeasuredCalibration result;
    Calibration& found = result.calibration;
    std::string& text = result.text;
    found.policy.rows.clear();
    const auto add = [&](Direction direction, Copy::Kind kind, const char* title) {
        const std::vector<CopyCosts> table = measure_costs(bench, kind);
        add_rows(found.policy, direction, table);
        text += to_text(title, table);
    };
    add(Direction::read, Copy::Kind::read, "read");
    add(Direction::write, Copy::Kind::write, "write");
    add(Direction::zero, Copy::Kind::zero, "zero");
    result.disturbed = bench.disturbed();
    if (result.disturbed) {
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
    return result;
}

}  // namespace gpunbd::storage
