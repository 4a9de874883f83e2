#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/attach/device.hpp"
#include "server/tools/client/failure.hpp"

namespace gpunbd::attach {

// The swap areas of the machine, from /proc/swaps, and whether their contents fit into memory.
struct SwapArea {
    std::string file;
    std::uint64_t size = 0;  // in bytes
    std::uint64_t used = 0;
};

// `root`: the folder that contains proc; tests pass another one.
std::vector<SwapArea> read_swap_areas(const std::string& root);

// Fails if the contents of `area` do not fit into available memory plus the other areas, less a
// margin. Compressed memory does not count. In that case swapoff would trigger the OOM killer.
std::optional<Failure> no_room_for(const SwapArea& area, const std::string& root);

// The mounts in this mount namespace, from /proc/self/mountinfo.
struct Mount {
    std::string id;
    std::string parent;   // the id of the parent mount
    std::string numbers;  // of the block device: 43:0
    std::string place;
    std::string type;  // of the file system
    std::string source;
};

// In mount order. `root`: the folder that contains proc; tests pass another one.
std::vector<Mount> read_mounts(const std::string& root);

// Decodes the octal escapes of names in /proc: \040 is a space.
std::string unescaped(std::string_view text);

// The block devices that use a disk: its partitions, and the device mapper and md devices built on
// it.
struct BlockDevice {
    std::string name;    // in the kernel: nbd0, nbd0p1, dm-0, md0
    std::string folder;  // in sysfs
    bool is_partition = false;
    std::string numbers;
    std::string mapper_name;  // below /dev/mapper; empty if it is not a device mapper device
    std::string mapper_uuid;  // the prefix names the subsystem: LVM-, CRYPT-
    std::vector<std::string> holders;  // the names of the devices built on it

    bool is_mapped() const { return !mapper_name.empty(); }
    bool is_array() const { return name.starts_with("md") && !is_partition; }
    bool has_file(std::string_view file) const;  // /dev/dm-0, /dev/mapper/NAME
    // File systems with device numbers of their own, such as btrfs, are matched by the source.
    bool has(const Mount& mount) const {
        return mount.numbers == numbers || has_file(mount.source);
    }
    // dm-0 (NAME), md0
    std::string shown() const;
};

// Begins with the disk itself. Each device follows all of its parts. `disk`: its name in the
// kernel; `root`: the folder that contains sys.
std::vector<BlockDevice> stack_on(const std::string& disk, const std::string& root);

// The uses that prevent detaching a device: mounts, devices built on it, programs that have it
// open, and swap.
struct Holder {
    std::string what;    // "is mounted on /mnt", "is a part of dm-0 (secret)"
    std::string remedy;  // a command; empty if another remedy covers it
    bool is_program = false;
};

// The uses of the device, its partitions and the devices built on them. Uses that have to end first
// come last. Only mounts in this mount namespace and processes with readable file tables are found.
std::vector<Holder> holders_of(const Device& device);

// The uses, and the commands that end them, each joined to one line.
std::string joined_uses(const std::vector<Holder>& holders);
std::string joined_remedies(const std::vector<Holder>& holders);
Failure in_use(const Device& device, const std::vector<Holder>& holders);

// Swap areas on the device and its partitions: /dev/nbd0, or /dev/nbd0p1.
std::vector<SwapArea> swaps_on(const Device& device);

}  // namespace gpunbd::attach
