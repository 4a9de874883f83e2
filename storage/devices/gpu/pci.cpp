#include "storage/devices/gpu/pci.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace gpunbd::storage {

namespace {

template <class Value>
Value read_attribute(const std::string& folder, const char* name, Value otherwise) {
    std::ifstream file(fmt::format("{}/{}", folder, name));
    Value value{};
    return file >> value ? value : otherwise;
}

// From the rate of a lane in GT/s; 0: unknown.
int generation(double rate) {
    int number = 0;
    for (const double known : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
        ++number;
        if (rate == known) return number;
    }
    return 0;
}

std::string link_text(double rate, int width) {
    const int number = generation(rate);
    const bool known = number != 0 && width >= 1 && width <= 32;
    return known ? fmt::format("PCIe gen {} x{}", number, width) : std::string();
}

bool is_pci_address(std::string_view text) {
    const auto take = [&text](std::size_t least, std::size_t most, char separator) {
        const std::size_t digits =
            std::min(text.find_first_not_of("0123456789abcdef"), text.size());
        if (digits < least || digits > most || digits == text.size()) return false;
        if (text[digits] != separator) return false;
        text.remove_prefix(digits + 1);
        return true;
    };
    return take(4, 8, ':') && take(2, 2, ':') && take(2, 2, '.') && text.size() == 1 &&
           text[0] >= '0' && text[0] <= '7';
}

}  // namespace

std::optional<std::string> parse_pci_address(std::string_view text) {
    std::string address(text);
    for (char& c : address) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (std::count(address.begin(), address.end(), ':') == 1) address.insert(0, "0000:");
    if (!is_pci_address(address)) return std::nullopt;
    constexpr std::size_t domain_digits = 4;  // more only if the number needs them
    const std::size_t domain = address.find(':');
    const std::size_t zeroes = std::min(address.find_first_not_of('0'), domain);
    address.erase(0, std::min(zeroes, domain - domain_digits));
    return address;
}

PciFacts read_pci_facts(const std::string& address, const std::string& devices) {
    const std::string folder = fmt::format("{}/{}", devices, address);
    const std::string now = link_text(read_attribute(folder, "current_link_speed", 0.0),
                                      read_attribute(folder, "current_link_width", 0));
    const std::string max = link_text(read_attribute(folder, "max_link_speed", 0.0),
                                      read_attribute(folder, "max_link_width", 0));
    PciFacts facts;
    facts.link = now;
    // Idle GPUs reduce the speed of their links.
    if (!now.empty() && !max.empty() && now != max) facts.link += ", up to " + max;
    facts.numa_node = read_attribute(folder, "numa_node", -1);
    return facts;
}

}  // namespace gpunbd::storage
