// The block devices that lie on an attached device: its partitions, and what device mapper and md
// have made of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/mounts.hpp"

namespace gpunbd::attach {

struct BlockDevice {
    std::string name;    // the kernel's: nbd0, nbd0p1, dm-0, md0
    std::string folder;  // in sysfs
    bool is_partition = false;
    std::string numbers;
    std::string mapper_name;           // below /dev/mapper; empty: it is none of device mapper
    std::string mapper_uuid;           // begins with what made it: LVM-, CRYPT-
    std::vector<std::string> holders;  // the names of what is made of it

    bool is_mapped() const { return !mapper_name.empty(); }
    bool is_array() const { return name.starts_with("md") && !is_partition; }
    bool has_file(std::string_view file) const;  // /dev/dm-0, /dev/mapper/NAME
    // A file system with device numbers of its own, such as btrfs, is known by its source.
    bool has(const Mount& mount) const {
        return mount.numbers == numbers || has_file(mount.source);
    }
    // dm-0 (NAME), md0
    std::string shown() const;
};

// The device itself first, and each behind all that it is made of.
std::vector<BlockDevice> stack_on(const Device& device);

}  // namespace gpunbd::attach
