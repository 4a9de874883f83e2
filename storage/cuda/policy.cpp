#include "storage/cuda/policy.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpunbd::storage::cuda {

namespace {

bool possible(Path path, Policy::Means means) {
    switch (path) {
        case Path::mapping:
        case Path::streaming_load:
            return means.mapping;
        case Path::resident:
            return means.resident;
        case Path::copy_engine:
        case Path::kernel:
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

Path Policy::choose(Direction direction, Load load, std::uint32_t bytes, Means means) const {
    for (const Row& row : rows) {
        if (row.direction == direction && (row.loads & on(load)) != 0 && bytes <= row.up_to &&
            possible(row.path, means)) {
            return row.path;
        }
    }
    return Path::copy_engine;
}

std::uint32_t Policy::longest_for_kernel() const {
    std::uint32_t longest = 0;
    for (const Row& row : rows) {
        if (row.path == Path::kernel || row.path == Path::resident) {
            longest = std::max(longest, row.up_to);
        }
    }
    return longest;
}

Policy default_policy() {
    constexpr std::uint32_t kib = 1024;
    constexpr std::uint8_t alone = Policy::on(Load::alone);
    constexpr std::uint8_t crowded = Policy::on(Load::busy) | Policy::on(Load::several);
    return {{
        {Direction::read, Policy::any_load, kib, Path::streaming_load},
        {Direction::read, alone, 256 * kib, Path::resident},
        {Direction::read, crowded, 32 * kib, Path::resident},
        {Direction::read, crowded, 256 * kib, Path::kernel},
        {Direction::read, Policy::any_load, Policy::any_size, Path::copy_engine},
        {Direction::write, Policy::any_load, longest_for_mapping, Path::mapping},
        {Direction::write, alone, 256 * kib, Path::resident},
        {Direction::write, crowded, 32 * kib, Path::resident},
        {Direction::write, crowded, 256 * kib, Path::kernel},
        {Direction::write, Policy::any_load, Policy::any_size, Path::copy_engine},
        {Direction::zero, Policy::any_load, 64 * kib, Path::mapping},
        {Direction::zero, alone, 128 * kib, Path::resident},
        {Direction::zero, crowded, 32 * kib, Path::resident},
        {Direction::zero, crowded, 256 * kib, Path::kernel},
        {Direction::zero, Policy::any_load, Policy::any_size, Path::copy_engine},
    }};
}

Policy only(Path path) {
    Policy policy;
    for (const Direction direction : {Direction::read, Direction::write, Direction::zero}) {
        const bool reads = direction == Direction::read;
        if (path == (reads ? Path::mapping : Path::streaming_load)) continue;
        policy.rows.push_back({direction, Policy::any_load, Policy::any_size, path});
        if (path == Path::resident) {  // where there is none, the nearest to it
            policy.rows.push_back({direction, Policy::any_load, Policy::any_size, Path::kernel});
        }
    }
    return policy;
}

const char* to_text(Path path) {
    switch (path) {
        case Path::mapping:
            return "mapping";
        case Path::streaming_load:
            return "streaming load";
        case Path::copy_engine:
            return "copy engine";
        case Path::resident:
            return "resident";
        case Path::kernel:
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

}  // namespace gpunbd::storage::cuda
