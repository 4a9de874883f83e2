// The block devices that use a disk: its partitions, and the device mapper and md devices built on
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/tools/attach/mounts.hpp"

namespace gpunbd::attach {

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

}  // namespace gpunbd::attach
