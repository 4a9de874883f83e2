// What calibration found, as text that a later process can go on with instead of measuring again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// Which ways copies take, and what long ones are cut to. At first what suits one H200.
struct Calibration {
    Policy policy = default_policy();
    std::uint32_t chunk_size = 1 << 20;  // bytes: the shortest copy that reaches the link's speed
};

// `circumstances`: one line that says what it was found on.
std::string saved(const Calibration& calibration, std::string_view circumstances);
// Nothing: it was found in other circumstances, or this is not, to the letter, what saved() gives.
std::optional<Calibration> read_calibration(std::string_view text, std::string_view circumstances);

}  // namespace gpunbd::storage
