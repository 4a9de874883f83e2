#include "server/tools/attach/detachment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/dm-ioctl.h>
#include <linux/major.h>
#include <linux/raid/md_u.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/kernel_client.hpp"
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

constexpr std::chrono::seconds detach_timeout(10);
constexpr std::chrono::milliseconds poll_interval(100);
constexpr int program_checks = 20;
constexpr std::chrono::milliseconds udev_check_interval(20);
constexpr int udev_checks = 100;
constexpr int idle_checks = 5;

// Ignores programs, such as udev workers, that open a device only for a moment.
std::vector<Holder> lasting_holders_of(const Device& device) {
    const auto is_program = [](const Holder& each) { return each.is_program; };
    auto holders = holders_of(device);
    for (int more = program_checks; more != 0 && !holders.empty(); --more) {
        if (!std::all_of(holders.begin(), holders.end(), is_program)) break;
        std::this_thread::sleep_for(poll_interval);
        holders = holders_of(device);
    }
    return holders;
}

std::optional<Failure> held(const Device& device) {
    const auto holders = lasting_holders_of(device);
    if (holders.empty()) return std::nullopt;
    return in_use(device, holders);
}

// Only the kernel knows of mounts in other namespaces and of programs that open the device
// exclusively.
std::optional<Failure> claimed(const Device& device) {
    const OwnedFd file(::open(device.path().c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
    if (file.get() >= 0 || errno != EBUSY) return std::nullopt;
    return Failure{device.path() +
                   " is in use: it is mounted in another mount namespace, for example of a "
                   "container, or a program has opened it exclusively; end that use first"};
}

// udev reads a device after it is unmounted or swapped off. Without this wait the kernel would log
// harmless I/O errors.
void await_udev() {
    constexpr const char* while_it_works = "/run/udev/queue";
    int quiet = 0;
    for (int more = udev_checks; more != 0 && quiet != idle_checks; --more) {
        std::this_thread::sleep_for(udev_check_interval);
        quiet = ::access(while_it_works, F_OK) == 0 ? 0 : quiet + 1;
    }
}

std::optional<Failure> disconnect(const Device& device) {
    auto kernel = KernelClient::open();
    if (!kernel) return kernel.error();
    const int error = kernel->disconnect(device.number());
    if (error == EPERM) return Failure{"detaching needs CAP_SYS_ADMIN; run it as root"};
    if (error != 0) return failure(device.path() + " cannot be detached", error);
    return std::nullopt;
}

std::optional<Failure> missing(const Device& device) {
    if (device.attached()) return std::nullopt;
    return Failure{device.path() +
                   " is not attached; gpunbd attach --list lists the attached devices"};
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

std::optional<Failure> detach(const Device& device) {
    if (auto failed = missing(device)) return failed;
    if (auto failed = held(device)) return failed;
    if (auto failed = swap_off(device)) return failed;
    if (auto failed = claimed(device)) return failed;
    await_udev();
    if (auto failed = disconnect(device)) return failed;
    return device.await_detached(detach_timeout);
}

std::optional<Failure> detach_by_force(const Device& device) {
    if (auto failed = missing(device)) return failed;
    return disconnect(device);
}

}  // namespace gpunbd::attach
