// Sizes as people write them: 64M, 1.5GiB, 4096, 100%.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "config/options.hpp"

namespace gpunbd::config {

// The size, or what is wrong with the text and what would be right. Units are binary:
// K/KiB, M/MiB, G/GiB, T/TiB, any case, or plain bytes; a fraction must come out as whole bytes.
std::variant<Size, std::string> parse_size(std::string_view text);
// The shortest exact form: 2M, 1536K, 75%.
std::string format_size(Size size);
// For people to read, not to write: at most one decimal, rounded: 1.5 GiB, 512 MiB, 20.3 GiB.
std::string human_size(std::uint64_t bytes);

}  // namespace gpunbd::config
