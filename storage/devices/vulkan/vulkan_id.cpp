#include "storage/devices/vulkan/vulkan_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "storage/devices/gpu/gpu_id.hpp"

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::string_view scheme = "vulkan";

}  // namespace

std::string guess_id(std::string_view text) {
    constexpr std::array<std::string_view, 6> others{"vulkan", "vk",    "amd",
                                                     "radeon", "intel", "opencl"};
    const std::size_t letters =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
    if (std::ranges::find(others, text.substr(0, letters)) == others.end()) return {};
    std::string_view number = text.substr(letters);
    if (!number.empty() && (number[0] == ':' || number[0] == '-')) number.remove_prefix(1);
    if (number.empty()) number = "0";
    return parse_gpu_id(scheme, fmt::format("{}:{}", scheme, number)).value_or("");
}

std::string identity_of(std::string_view hardware) {
    return fmt::format("{}:{}", scheme, hardware);
}

}  // namespace gpunbd::storage::vulkan
