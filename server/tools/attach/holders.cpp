#include "server/tools/attach/holders.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/process.hpp"
#include "server/tools/attach/device.hpp"

namespace gpunbd::attach {

namespace {

constexpr std::uint64_t kib = 1024;
// Reserve for the kernel and for programs that allocate memory during swapoff.
constexpr std::uint64_t least_margin = std::uint64_t{16} << 20;
constexpr std::uint64_t margin_part = 32;  // of the total memory

// The sum of the numbers after this key, one to a line; nothing if there is none.
std::optional<std::uint64_t> sum_of(const std::string& path, const std::string& wanted) {
    std::ifstream file(path);
    std::optional<std::uint64_t> sum;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        std::uint64_t value = 0;
        if (words >> key >> value && key == wanted) sum = sum.value_or(0) + value;
    }
    return sum;
}

// A value of /proc/meminfo, in bytes.
std::optional<std::uint64_t> memory_number(const std::string& root, const std::string& name) {
    const auto number = sum_of(root + "proc/meminfo", name + ":");
    return number ? std::optional(*number * kib) : std::nullopt;
}

// Bytes of free pages that the kernel keeps for each CPU, which MemAvailable does not contain. With
// the reserve of memory that swap needs they may be more than 40 MiB per CPU.
std::uint64_t free_of_cpus(const std::string& root) {
    return sum_of(root + "proc/zoneinfo", "count:").value_or(0) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t free_elsewhere(const SwapArea& area, const std::string& root) {
    std::uint64_t out = 0;
    for (const SwapArea& each : read_swap_areas(root)) {
        const bool is_memory = each.file.find("/zram") != std::string::npos;
        if (each.file != area.file && !is_memory) out += each.size - each.used;
    }
    return out;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// A line of /proc/self/mountinfo; proc(5).
Mount read_mount(const std::string& line) {
    std::istringstream words(line);
    Mount out;
    std::string skipped;
    words >> out.id >> out.parent >> out.numbers >> skipped >> out.place;
    while (words >> skipped && skipped != "-") {
    }
    words >> out.type >> out.source;
    out.place = unescaped(out.place);
    out.source = unescaped(out.source);
    return out;
}

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

// Quotes names with characters that a terminal would interpret.
std::string shown(const std::string& place) {
    const std::string quoted = config::in_quotes(place);
    return quoted == "'" + place + "'" ? place : quoted;
}

// A device, and the prefix of its messages: "" for the device itself and its partitions, else "dm-0
// ".
struct Subject {
    const BlockDevice& block;
    std::string prefix;
};

void add_mounts(const std::vector<Mount>& mounts, const Subject& of, std::vector<Holder>& out) {
    for (const Mount& mount : mounts) {
        if (!of.block.has(mount)) continue;
        const std::string place = shown(mount.place);
        out.push_back({of.prefix + "is mounted on " + place, "umount " + place});
    }
}

// VG/LV from VG-LV. A doubled hyphen stands for a hyphen within a name.
std::string logical_volume(std::string_view mapper_name) {
    std::string out;
    for (std::size_t i = 0; i != mapper_name.size(); ++i) {
        const bool hyphen = mapper_name[i] == '-';
        const bool doubled = hyphen && i + 1 != mapper_name.size() && mapper_name[i + 1] == '-';
        out += hyphen && !doubled ? '/' : mapper_name[i];
        if (doubled) ++i;
    }
    return out;
}

bool is_lvm(const BlockDevice& block) { return block.mapper_uuid.starts_with("LVM-"); }

// The command that removes a stacked device. Deactivating a logical volume also removes its
// LVM-internal devices, so these need no command.
std::string remedy_of(const BlockDevice& block, const std::vector<BlockDevice>& stack) {
    if (block.is_array()) return "mdadm --stop /dev/" + block.name;
    if (!block.is_mapped()) return {};
    if (block.mapper_uuid.starts_with("CRYPT-")) {
        return "cryptsetup close " + shown(block.mapper_name);
    }
    if (!is_lvm(block)) return "dmsetup remove " + shown(block.mapper_name);
    const bool inner = std::any_of(stack.begin(), stack.end(), [&](const BlockDevice& each) {
        return is_lvm(each) && std::find(block.holders.begin(), block.holders.end(), each.name) !=
                                   block.holders.end();
    });
    return inner ? std::string() : "lvchange -an " + shown(logical_volume(block.mapper_name));
}

std::string name_of_process(const std::string& folder) {
    std::ifstream file(folder + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

bool has_open(const std::string& process, const std::vector<BlockDevice>& blocks) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(process + "/fd", error), end; !error && at != end;
         at.increment(error)) {
        std::error_code unreadable;
        const std::string file = std::filesystem::read_symlink(at->path(), unreadable).string();
        if (std::any_of(blocks.begin(), blocks.end(),
                        [&](const BlockDevice& each) { return each.has_file(file); })) {
            return true;
        }
    }
    return false;
}

// Programs that have the device or a partition open.
void add_openers(const std::string& root, const std::vector<BlockDevice>& blocks,
                 std::vector<Holder>& out) {
    std::error_code error;
    std::set<std::uint64_t> found;
    for (std::filesystem::directory_iterator at(root + "proc", error), end; !error && at != end;
         at.increment(error)) {
        const auto process = server::decimal(at->path().filename().string());
        if (process && has_open(at->path().string(), blocks)) found.insert(*process);
    }
    for (const std::uint64_t process : found) {
        const std::string name = name_of_process(fmt::format("{}proc/{}", root, process));
        out.push_back({fmt::format("is open in process {} ({})", process, shown(name)),
                       fmt::format("kill {}", process), true});
    }
}

}  // namespace

std::vector<SwapArea> read_swap_areas(const std::string& root) {
    std::vector<SwapArea> out;
    std::ifstream file(root + "proc/swaps");
    std::string line;
    std::getline(file, line);  // headings
    while (std::getline(file, line)) {
        std::istringstream words(line);
        SwapArea area;
        std::string type;
        words >> area.file >> type >> area.size >> area.used;
        area.file = unescaped(area.file);
        area.size *= kib;
        area.used *= kib;
        out.push_back(std::move(area));
    }
    return out;
}

std::optional<Failure> no_room_for(const SwapArea& area, const std::string& root) {
    auto available = memory_number(root, "MemAvailable");
    if (!available || area.used == 0) return std::nullopt;
    if (*available != 0) *available += free_of_cpus(root);  // otherwise less than 0 is available
    const std::uint64_t margin =
        least_margin + memory_number(root, "MemTotal").value_or(0) / margin_part;
    const std::uint64_t elsewhere = free_elsewhere(area, root);
    if (area.used + margin <= *available + elsewhere) return std::nullopt;
    return Failure{fmt::format(
        "the swapped-out memory on {} ({}) does not fit into RAM: {} are available there, {} in "
        "other swap, and {} have to stay free; end programs, or add other swap, first",
        area.file, config::human_size(area.used), config::human_size(*available),
        config::human_size(elsewhere), config::human_size(margin))};
}

std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) &&
            is_octal(text[i + 2]) && is_octal(text[i + 3])) {
            out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                     (text[i + 3] - '0'));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<Mount> read_mounts(const std::string& root) {
    std::vector<Mount> out;
    std::ifstream file(root + "proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) out.push_back(read_mount(line));
    return out;
}

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

std::vector<Holder> holders_of(const Device& device) {
    std::vector<Holder> out;
    const std::vector<BlockDevice> stack = stack_on(device.name(), device.root());
    const std::vector<Mount> mounts = read_mounts(device.root());
    const std::vector<SwapArea> swaps = read_swap_areas(device.root());
    std::vector<BlockDevice> own;
    for (const BlockDevice& block : stack) {
        const bool is_own = block.folder.starts_with(device.folder());
        if (!is_own && !block.is_partition) {
            out.push_back({"is a part of " + block.shown(), remedy_of(block, stack)});
        }
        add_mounts(mounts, {block, is_own ? "" : block.name + " "}, out);
        if (is_own) {
            own.push_back(block);
            continue;
        }
        for (const SwapArea& area : swaps) {
            if (block.has_file(area.file)) {
                out.push_back({block.name + " is swapped to", "swapoff " + shown(area.file)});
            }
        }
    }
    add_openers(device.root(), own, out);
    return out;
}

std::string joined_uses(const std::vector<Holder>& holders) {
    std::string out;
    for (const Holder& each : holders) out += (out.empty() ? "" : ", ") + each.what;
    return out;
}

std::string joined_remedies(const std::vector<Holder>& holders) {
    std::string out;
    for (auto each = holders.rbegin(); each != holders.rend(); ++each) {
        if (!each->remedy.empty()) out += (out.empty() ? "" : " && ") + each->remedy;
    }
    return out;
}

Failure in_use(const Device& device, const std::vector<Holder>& holders) {
    return {fmt::format("{} is in use: it {}; release it first, for example: {}", device.path(),
                        joined_uses(holders), joined_remedies(holders))};
}

std::vector<SwapArea> swaps_on(const Device& device) {
    std::vector<SwapArea> out;
    const std::vector<BlockDevice> stack = stack_on(device.name(), device.root());
    for (SwapArea& area : read_swap_areas(device.root())) {
        if (std::any_of(stack.begin(), stack.end(), [&](const BlockDevice& each) {
                return each.folder.starts_with(device.folder()) && each.has_file(area.file);
            })) {
            out.push_back(std::move(area));
        }
    }
    return out;
}

}  // namespace gpunbd::attach
