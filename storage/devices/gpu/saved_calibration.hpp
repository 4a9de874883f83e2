// Saves the result of a calibration as text, so that a later process need not measure again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/policy.hpp"

namespace gpunbd::storage {

// The policy and the chunk size. The defaults suit one H200.
struct Calibration {
    Policy policy = default_policy();
    std::uint32_t chunk_size = 1 << 20;  // bytes: the smallest that reaches the speed of the link
};

// The options of a channel with the chunk size of the calibration, unless they have one. Without
// their policy, which need not outlive the call that opens the channel.
ChannelOptions tuned(const ChannelOptions& options, const Calibration& calibration);

// `circumstances`: one line that describes what the result is valid for.
std::string saved(const Calibration& calibration, std::string_view circumstances);
// Empty: the result is for other circumstances, or the text is not exactly as saved() writes it.
std::optional<Calibration> read_calibration(std::string_view text, std::string_view circumstances);

}  // namespace gpunbd::storage
