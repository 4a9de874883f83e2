#include "server/tools/attach/block_stack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {
namespace {

// A limit, because sysfs changes while it is read. Real stacks are far smaller.
constexpr std::size_t most_devices = 1000;

std::string attribute(const std::string& folder, const char* name) {
    std::ifstream file(folder + "/" + name);
    std::string line;
    std::getline(file, line);
    return line;
}

BlockDevice block_device(const std::string& name, const std::string& folder, bool is_partition) {
    return {.name = name,
            .folder = folder,
            .is_partition = is_partition,
            .numbers = attribute(folder, "dev"),
            .mapper_name = attribute(folder, "dm/name"),
            .mapper_uuid = attribute(folder, "dm/uuid"),
            .holders = names_in(folder + "/holders")};
}

void add(BlockDevice device, std::vector<BlockDevice>& stack) {
    std::erase_if(stack, [&](const BlockDevice& each) { return each.name == device.name; });
    stack.push_back(std::move(device));
}

// Adds a disk, its partitions, and the devices that are built on either. A device that is listed
// already moves to the end, so that it follows all of its parts.
void add_disk(const std::string& root, const std::string& name, std::vector<BlockDevice>& stack,
              std::size_t& left) {
    if (left == 0) return;
    --left;
    const std::string folder = root + "sys/block/" + name;
    std::vector<BlockDevice> parts{block_device(name, folder, false)};
    const bool ends_in_digit = name.back() >= '0' && name.back() <= '9';
    const std::string start = ends_in_digit ? name + "p" : name;
    for (const std::string& each : names_in(folder)) {
        if (each.size() > start.size() && each.starts_with(start)) {
            parts.push_back(block_device(each, fmt::format("{}/{}", folder, each), true));
        }
    }
    for (const BlockDevice& each : parts) add(each, stack);
    for (const BlockDevice& each : parts) {
        for (const std::string& holder : each.holders) add_disk(root, holder, stack, left);
    }
}

}  // namespace

bool BlockDevice::has_file(std::string_view file) const {
    return file == "/dev/" + name || (is_mapped() && file == "/dev/mapper/" + mapper_name);
}

std::string BlockDevice::shown() const {
    return is_mapped() ? name + " (" + mapper_name + ")" : name;
}

std::vector<BlockDevice> stack_on(const std::string& disk, const std::string& root) {
    std::vector<BlockDevice> out;
    std::size_t left = most_devices;
    add_disk(root, disk, out, left);
    return out;
}

}  // namespace gpunbd::attach
