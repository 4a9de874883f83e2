#include "storage/devices/gpu/calibrated_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gpunbd::storage {

namespace {

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
