#include "storage/devices/gpu/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gpunbd::storage {

namespace {

bool possible(PathKind path, Policy::Features means) {
    switch (path) {
        case PathKind::mapping:
        case PathKind::streaming_load:
            return means.mapping;
        case PathKind::persistent_kernel:
            return means.kernels && means.persistent_kernel;
        case PathKind::kernel:
            return means.kernels;
        case PathKind::engine_batch:
            return means.engine_batch;
        case PathKind::copy_engine:
            return true;
        case PathKind::managed:  // chosen by the channel, and of other devices
        case PathKind::file:
            break;
    }
    return false;
}

const char* to_text(Direction direction) {
    switch (direction) {
        case Direction::read:
            return "read";
        case Direction::write:
            return "write";
        case Direction::zero:
            return "zero";
    }
    return "?";
}

std::string loads_text(std::uint8_t loads) {
    if (loads == Policy::any_load) return "any";
    std::string text;
    const auto add = [&](Load load, const char* name) {
        if ((loads & Policy::on(load)) == 0) return;
        if (!text.empty()) text += ", ";
        text += name;
    };
    add(Load::alone, "alone");
    add(Load::busy, "engines busy");
    add(Load::several, "several");
    return text;
}

std::string size_text(std::uint32_t bytes) {
    if (bytes == Policy::any_size) return "any size";
    if (bytes % 1024 == 0) return fmt::format("<= {} KiB", bytes / 1024);
    return fmt::format("<= {} B", bytes);
}

constexpr double fast_enough = 0.85;  // of the best rate of all chunk sizes

// The largest size for which, and for all smaller ones, `wins` holds; 0: none.
template <class Wins>
std::uint32_t up_to(const std::vector<CopyCosts>& table, Wins wins) {
    std::uint32_t limit = 0;
    for (const CopyCosts& costs : table) {
        if (!wins(costs)) break;
        limit = costs.bytes;
    }
    return limit;
}

double best_rate(const std::vector<ChunkRates>& table, double ChunkRates::*rate) {
    double best = 0;
    for (const ChunkRates& rates : table) best = std::max(best, rates.*rate);
    return best;
}

}  // namespace

PathKind Policy::choose(Direction direction, Load load, std::uint32_t bytes, Features means) const {
    for (const Row& row : rows) {
        if (row.direction == direction && (row.loads & on(load)) != 0 && bytes <= row.up_to &&
            possible(row.path, means)) {
            return row.path;
        }
    }
    return PathKind::copy_engine;
}

bool Policy::uses(PathKind path) const {
    return std::ranges::any_of(rows, [path](const Row& row) { return row.path == path; });
}

std::uint32_t Policy::max_for_kernel() const {
    std::uint32_t longest = 0;
    for (const Row& row : rows) {
        if (row.path == PathKind::kernel || row.path == PathKind::persistent_kernel) {
            longest = std::max(longest, row.up_to);
        }
    }
    return longest;
}

Policy default_policy() {
    constexpr std::uint32_t kib = 1024;
    constexpr std::uint8_t alone = Policy::on(Load::alone);
    constexpr std::uint8_t several = Policy::on(Load::several);
    constexpr std::uint8_t crowded = Policy::on(Load::busy) | several;
    return {{
        {Direction::read, Policy::any_load, kib, PathKind::streaming_load},
        {Direction::read, alone, 256 * kib, PathKind::persistent_kernel},
        {Direction::read, crowded, 32 * kib, PathKind::persistent_kernel},
        {Direction::read, crowded, 256 * kib, PathKind::kernel},
        {Direction::read, several, 256 * kib, PathKind::engine_batch},
        {Direction::read, Policy::any_load, Policy::any_size, PathKind::copy_engine},
        {Direction::write, Policy::any_load, max_for_mapping, PathKind::mapping},
        {Direction::write, alone, 256 * kib, PathKind::persistent_kernel},
        {Direction::write, crowded, 32 * kib, PathKind::persistent_kernel},
        {Direction::write, crowded, 256 * kib, PathKind::kernel},
        {Direction::write, several, 256 * kib, PathKind::engine_batch},
        {Direction::write, Policy::any_load, Policy::any_size, PathKind::copy_engine},
        {Direction::zero, Policy::any_load, 64 * kib, PathKind::mapping},
        {Direction::zero, alone, 128 * kib, PathKind::persistent_kernel},
        {Direction::zero, crowded, 32 * kib, PathKind::persistent_kernel},
        {Direction::zero, crowded, 256 * kib, PathKind::kernel},
        {Direction::zero, several, 256 * kib, PathKind::engine_batch},
        {Direction::zero, Policy::any_load, Policy::any_size, PathKind::copy_engine},
    }};
}

Policy only(PathKind path) {
    Policy policy;
    for (const Direction direction : {Direction::read, Direction::write, Direction::zero}) {
        const bool reads = direction == Direction::read;
        if (path == (reads ? PathKind::mapping : PathKind::streaming_load)) continue;
        policy.rows.push_back({direction, Policy::any_load, Policy::any_size, path});
        if (path == PathKind::persistent_kernel) {  // without a persistent kernel, a plain kernel
                                                    // is the closest path
            policy.rows.push_back(
                {direction, Policy::any_load, Policy::any_size, PathKind::kernel});
        }
    }
    return policy;
}

std::string to_text(const Policy& policy) {
    std::string text;
    for (const Policy::Row& row : policy.rows) {
        text += fmt::format("{:<5}  {:<21}  {:<11}  {}\n", to_text(row.direction),
                            loads_text(row.loads), size_text(row.up_to), to_text(row.path));
    }
    return text;
}

void add_rows(Policy& policy, Direction direction, const std::vector<CopyCosts>& table) {
    constexpr std::uint8_t alone = Policy::on(Load::alone);
    constexpr std::uint8_t crowded = Policy::on(Load::busy) | Policy::on(Load::several);
    const auto add = [&](std::uint8_t loads, std::uint32_t limit, PathKind path) {
        if (limit != 0) policy.rows.push_back({direction, loads, limit, path});
    };
    const auto cpu_limit = [&](auto other) {
        return up_to(table, [&](const CopyCosts& costs) {
            return costs.by_cpu.has_value() && *costs.by_cpu <= other(costs);
        });
    };
    if (direction == Direction::write) {
        // The socket call receives these writes directly in the mapping, so no other path can save
        // a copy.
        add(Policy::any_load, max_for_mapping, PathKind::mapping);
    } else {
        const PathKind path =
            direction == Direction::read ? PathKind::streaming_load : PathKind::mapping;
        add(alone, cpu_limit([](const CopyCosts& c) {
                return std::min({c.engine, c.kernel, c.persistent});
            }),
            path);
        add(crowded, cpu_limit([](const CopyCosts& c) { return std::min(c.kernel, c.persistent); }),
            path);
    }
    add(alone,
        up_to(table,
              [](const CopyCosts& c) { return c.persistent <= std::min(c.engine, c.kernel); }),
        PathKind::persistent_kernel);
    add(crowded,
        up_to(table,
              [](const CopyCosts& c) {
                  return c.persistent_crowd <= std::min(c.engine_crowd, c.kernel_crowd);
              }),
        PathKind::persistent_kernel);
    add(alone, up_to(table, [](const CopyCosts& c) { return c.kernel <= c.engine; }),
        PathKind::kernel);
    add(crowded, up_to(table, [](const CopyCosts& c) { return c.kernel_crowd <= c.engine_crowd; }),
        PathKind::kernel);
    // Kernels of several channels run side by side, but engine batches do not. Batches are for
    // longer copies, and for times when kernels are stopped.
    add(Policy::on(Load::several),
        up_to(table,
              [](const CopyCosts& c) {
                  return c.batch_crowd.has_value() && *c.batch_crowd <= c.engine_crowd;
              }),
        PathKind::engine_batch);
    add(Policy::any_load, Policy::any_size, PathKind::copy_engine);
}

std::uint32_t choose_chunk_size(const std::vector<ChunkRates>& table) {
    const double read = fast_enough * best_rate(table, &ChunkRates::read);
    const double write = fast_enough * best_rate(table, &ChunkRates::write);
    for (const ChunkRates& rates : table) {
        if (rates.read >= read && rates.write >= write) return rates.bytes;
    }
    return table.back().bytes;
}

std::string to_text(const char* title, const std::vector<CopyCosts>& table) {
    const auto number = [](const std::optional<double>& us) {
        return us && std::isfinite(*us) ? fmt::format("{:.1f}", *us) : std::string("-");
    };
    // In us; x8: eight copies at once.
    std::string text = fmt::format("{:<6}{:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9} {:>8}\n",
                                   title, "bytes", "CPU,us", "engine", "kernel", "persist",
                                   "engin.x8", "batch x8", "kernel x8", "pers. x8");
    for (const CopyCosts& costs : table) {
        text += fmt::format("{:<6}{:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9} {:>8}\n", "",
                            costs.bytes, number(costs.by_cpu), number(costs.engine),
                            number(costs.kernel), number(costs.persistent),
                            number(costs.engine_crowd), number(costs.batch_crowd),
                            number(costs.kernel_crowd), number(costs.persistent_crowd));
    }
    return text;
}

std::string to_text(const std::vector<ChunkRates>& table) {
    std::string text =
        fmt::format("{:<6} {:>8}  {:>9} {:>9}\n", "chunks", "KiB", "read GB/s", "write");
    for (const ChunkRates& rates : table) {
        text += fmt::format("{:<6} {:>8}  {:>9.1f} {:>9.1f}\n", "", rates.bytes / 1024, rates.read,
                            rates.write);
    }
    return text;
}

}  // namespace gpunbd::storage
