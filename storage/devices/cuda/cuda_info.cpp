#include "storage/devices/cuda/cuda_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "storage/devices/gpu/gpu_id.hpp"

namespace gpunbd::storage::cuda {
namespace {

constexpr std::string_view prefix = "cuda:";
constexpr std::size_t max_digits = 3;
#ifdef GPUNBD_CUDA_VERSION
constexpr std::string_view library_version = GPUNBD_CUDA_VERSION;
#else
constexpr std::string_view library_version = {};
#endif

bool is_number(std::string_view text) {
    return text.size() <= max_digits && text.find_first_not_of("0123456789") == text.npos;
}

std::optional<std::string> parse(std::string_view text) { return parse_gpu_id("cuda", text); }

// "gpu0", "cuda0", "0", "/dev/nvidia0", "gpu-" and a UUID, a PCI address
std::string guess(std::string_view text) {
    if (text.size() > max_digits) {
        if (const auto id = parse(fmt::format("{}{}", prefix, text))) return *id;
    }
    constexpr std::string_view folder = "/dev/";
    if (text.starts_with(folder)) text.remove_prefix(folder.size());
    const std::size_t letters =
        std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
    const std::string_view kind = text.substr(0, letters);
    constexpr std::array<std::string_view, 6> others{"", "cuda", "gpu", "nvidia", "vram", "card"};
    if (std::ranges::find(others, kind) == others.end()) return {};
    std::string_view number = text.substr(letters);
    const bool has_separator = !number.empty() && !kind.empty() && !is_number(number.substr(0, 1));
    if (has_separator) number.remove_prefix(1);
    if (!is_number(number)) return {};
    number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
    return std::string(prefix) + (number.empty() ? "0" : std::string(number));
}

}  // namespace

config::DriverInfo cuda_info() {
    constexpr std::string_view purpose = "GPUs, whose memory the CPU cannot address directly";
    return {.form = "cuda:N",
            .description =
                "cuda:N with the number, UUID or PCI address of an NVIDIA GPU, for example cuda:0",
            .example = "cuda:0",
            .parse = parse,
            .guess = guess,
            .settings = {{"mapped", purpose}, {"gpu_use", purpose}, {"revocable", "NVIDIA GPUs"}},
            .device_files = "/dev/nvidia",
            .called = "--cuda --gpu --gpus --card",
            .library = "CUDA",
            .library_version = library_version};
}

}  // namespace gpunbd::storage::cuda
