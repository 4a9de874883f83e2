#include "server/tools/attach/dismantling.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/dm-ioctl.h>
#include <linux/major.h>
#include <linux/raid/md_u.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/mounts.hpp"
#include "server/tools/attach/swap.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {
namespace {

// The mounts of the block device, and the mounts below them.
std::vector<Mount> mounts_on(const BlockDevice& block, const std::string& root) {
    std::vector<Mount> out;
    std::set<std::string> ids;
    for (Mount& mount : read_mounts(root)) {
        if (!block.has(mount) && ids.find(mount.parent) == ids.end()) continue;
        ids.insert(mount.id);
        out.push_back(std::move(mount));
    }
    return out;
}

std::optional<Failure> unmount_all(const BlockDevice& block, const std::string& root) {
    const std::vector<Mount> mounts = mounts_on(block, root);
    std::optional<Failure> first;
    for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
        if (::umount2(mount->place.c_str(), UMOUNT_NOFOLLOW) == 0) continue;
        if (!first) first = failure("umount " + mount->place, errno);
    }
    return first;
}

std::optional<Failure> remove_mapping(const BlockDevice& block) {
    const OwnedFd control(::open("/dev/mapper/control", O_RDWR | O_CLOEXEC));
    if (control.get() < 0) return failure("/dev/mapper/control", errno);
    dm_ioctl request{};
    request.version[0] = DM_VERSION_MAJOR;
    request.data_size = sizeof request;
    if (block.mapper_name.size() >= sizeof request.name) {
        return failure(block.mapper_name, ENAMETOOLONG);
    }
    std::memcpy(request.name, block.mapper_name.data(), block.mapper_name.size());
    if (::ioctl(control.get(), DM_DEV_REMOVE, &request) == 0) return std::nullopt;
    return failure("dmsetup remove " + block.mapper_name, errno);
}

std::optional<Failure> stop_array(const BlockDevice& block) {
    const std::string path = "/dev/" + block.name;
    const OwnedFd array(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (array.get() < 0) return failure(path, errno);
    if (::ioctl(array.get(), STOP_ARRAY, nullptr) == 0) return std::nullopt;
    return failure("mdadm --stop " + path, errno);
}

std::optional<Failure> dismantle_one(const BlockDevice& block, const std::string& root) {
    if (auto failed = unmount_all(block, root)) return failed;
    for (const SwapArea& area : read_swap_areas(root)) {
        if (!block.has_file(area.file)) continue;
        if (auto failed = swap_off(area, root)) return failed;
    }
    if (block.is_mapped()) return remove_mapping(block);
    if (block.is_array()) return stop_array(block);
    return std::nullopt;
}

}  // namespace

std::optional<Failure> dismantle(const std::string& disk, const std::string& root) {
    std::vector<BlockDevice> stack = stack_on(disk, root);
    std::optional<Failure> first;
    for (auto block = stack.rbegin(); block != stack.rend(); ++block) {
        auto failed = dismantle_one(*block, root);
        if (failed && !first) first = std::move(failed);
    }
    return first;
}

}  // namespace gpunbd::attach
