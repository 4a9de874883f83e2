// Sizes as text: 64M, 1.5GiB, 4096, 100%.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "config/options.hpp"

namespace gpunbd::config {

// Returns the size, or an error with a remedy. Units are binary: K/KiB, M/MiB, G/GiB, T/TiB, in any
// case, or none for bytes. A fraction must result in whole bytes.
std::variant<Size, std::string> parse_size(std::string_view text);
// The shortest exact form: 2M, 1536K, 75%.
std::string format_size(Size size);
// For display only: at most one decimal, rounded: 1.5 GiB, 512 MiB, 20.3 GiB.
std::string human_size(std::uint64_t bytes);

}  // namespace gpunbd::config
