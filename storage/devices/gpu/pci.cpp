#include "storage/devices/gpu/pci.hpp"

#include <fmt/format.h>

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

}  // namespace

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
