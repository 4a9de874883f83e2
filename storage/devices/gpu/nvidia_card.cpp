#include "storage/devices/gpu/nvidia_card.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace gpunbd::storage {

namespace {

namespace fs = std::filesystem;

std::string first_word(const fs::path& path) {
    std::ifstream file(path);
    std::string word;
    file >> word;
    return word;
}

}  // namespace

std::vector<std::string> display_cards(std::string_view vendor, const std::string& sysfs) {
    std::vector<std::string> cards;
    std::error_code error;
    fs::directory_iterator devices(sysfs + "/bus/pci/devices", error);
    for (; !error && devices != fs::directory_iterator(); devices.increment(error)) {
        const bool its = first_word(devices->path() / "vendor") == vendor;
        const bool display = first_word(devices->path() / "class").starts_with("0x03");
        if (its && display) cards.push_back(devices->path().filename());
    }
    std::sort(cards.begin(), cards.end());
    return cards;
}

std::vector<std::string> nvidia_cards(const std::string& sysfs) {
    return display_cards("0x10de", sysfs);
}

std::string nvidia_file(const std::string& address, const std::string& procfs) {
    constexpr std::string_view key = "Device Minor:";
    std::ifstream facts(procfs + "/driver/nvidia/gpus/" + address + "/information");
    for (std::string line; std::getline(facts, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t number = line.find_first_of("0123456789", key.size());
        if (number != std::string::npos) return "/dev/nvidia" + line.substr(number);
    }
    return {};
}

std::string gpu_remedy(const std::vector<std::string>& cards, bool built_with_cuda) {
    if (cards.empty()) return {};
    const std::string there = cards.size() == 1
                                  ? fmt::format("there is an NVIDIA card ({})", cards[0])
                                  : fmt::format("there are {} NVIDIA cards", cards.size());
    if (built_with_cuda) {
        return there +
               ": install NVIDIA's driver, "
               "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/";
    }
    return there +
           ": install the CUDA Toolkit, 12.4 or later (tested with 13.0), "
           "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/, and build gpunbd again";
}

}  // namespace gpunbd::storage
