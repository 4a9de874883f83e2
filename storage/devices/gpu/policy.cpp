#include "storage/devices/gpu/policy.hpp"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace gpunbd::storage
