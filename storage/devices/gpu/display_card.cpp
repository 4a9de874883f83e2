#include "storage/devices/gpu/display_card.hpp"

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

}  // namespace gpunbd::storage
