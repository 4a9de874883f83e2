#include "storage/devices/gpu/policy.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpunbd::storage {

namespace {

bool possible(CopyPath path, Policy::Means means) {
    switch (path) {
        case CopyPath::mapping:
        case CopyPath::streaming_load:
            return means.mapping;
        case CopyPath::persistent_kernel:
            return means.kernels && means.persistent_kernel;
        case CopyPath::kernel:
            return means.kernels;
        case CopyPath::engine_batch:
            return means.engine_batch;
        case CopyPath::copy_engine:
            return true;
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

CopyPath Policy::choose(Direction direction, Load load, std::uint32_t bytes, Means means) const {
    for (const Row& row : rows) {
        if (row.direction == direction && (row.loads & on(load)) != 0 && bytes <= row.up_to &&
            possible(row.path, means)) {
            return row.path;
        }
    }
    return CopyPath::copy_engine;
}

std::uint32_t Policy::max_for_kernel() const {
    std::uint32_t longest = 0;
    for (const Row& row : rows) {
        if (row.path == CopyPath::kernel || row.path == CopyPath::persistent_kernel) {
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
        {Direction::read, Policy::any_load, kib, CopyPath::streaming_load},
        {Direction::read, alone, 256 * kib, CopyPath::persistent_kernel},
        {Direction::read, crowded, 32 * kib, CopyPath::persistent_kernel},
        {Direction::read, crowded, 256 * kib, CopyPath::kernel},
        {Direction::read, several, 256 * kib, CopyPath::engine_batch},
        {Direction::read, Policy::any_load, Policy::any_size, CopyPath::copy_engine},
        {Direction::write, Policy::any_load, max_for_mapping, CopyPath::mapping},
        {Direction::write, alone, 256 * kib, CopyPath::persistent_kernel},
        {Direction::write, crowded, 32 * kib, CopyPath::persistent_kernel},
        {Direction::write, crowded, 256 * kib, CopyPath::kernel},
        {Direction::write, several, 256 * kib, CopyPath::engine_batch},
        {Direction::write, Policy::any_load, Policy::any_size, CopyPath::copy_engine},
        {Direction::zero, Policy::any_load, 64 * kib, CopyPath::mapping},
        {Direction::zero, alone, 128 * kib, CopyPath::persistent_kernel},
        {Direction::zero, crowded, 32 * kib, CopyPath::persistent_kernel},
        {Direction::zero, crowded, 256 * kib, CopyPath::kernel},
        {Direction::zero, several, 256 * kib, CopyPath::engine_batch},
        {Direction::zero, Policy::any_load, Policy::any_size, CopyPath::copy_engine},
    }};
}

Policy only(CopyPath path) {
    Policy policy;
    for (const Direction direction : {Direction::read, Direction::write, Direction::zero}) {
        const bool reads = direction == Direction::read;
        if (path == (reads ? CopyPath::mapping : CopyPath::streaming_load)) continue;
        policy.rows.push_back({direction, Policy::any_load, Policy::any_size, path});
        if (path == CopyPath::persistent_kernel) {  // where there is none, the nearest to it
            policy.rows.push_back(
                {direction, Policy::any_load, Policy::any_size, CopyPath::kernel});
        }
    }
    return policy;
}

const char* to_text(CopyPath path) {
    switch (path) {
        case CopyPath::mapping:
            return "mapping";
        case CopyPath::streaming_load:
            return "streaming load";
        case CopyPath::copy_engine:
            return "copy engine";
        case CopyPath::engine_batch:
            return "engine batch";
        case CopyPath::persistent_kernel:
            return "persistent kernel";
        case CopyPath::kernel:
            return "kernel";
    }
    return "?";
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
