#include "storage/pages/shared_directory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/memory_file.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t directory_magic = 0x31736261'6c536e67;  // "gnSlabs1"
constexpr std::uint32_t directory_version = 2;
constexpr std::uint32_t version_without_room = 1;
constexpr std::size_t header_bytes = 4096;  // a memory page
constexpr std::size_t words_of_device = std::size_t{SharedDirectory::max_slabs} + 1;

struct DirectoryHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t devices;
    std::uint64_t slabs;  // of each device
    std::uint64_t added;  // of the records
    DeviceRecord records[SharedDirectory::max_added];
};
constexpr std::size_t fixed_bytes = offsetof(DirectoryHeader, added);
static_assert(fixed_bytes == 24 && sizeof(DirectoryHeader) <= header_bytes);

std::uint64_t bytes_for(std::uint32_t devices) {
    const std::uint64_t words = devices * words_of_device * sizeof(std::uint64_t);
    return header_bytes + (words + header_bytes - 1) / header_bytes * header_bytes;
}

DirectoryHeader& header_at(std::byte* base) { return *reinterpret_cast<DirectoryHeader*>(base); }

[[noreturn]] void fail_without_memory() {
    throw std::system_error(errno, std::generic_category(), "no memory for a slab directory");
}

}  // namespace

SharedDirectory::SharedDirectory(std::uint32_t devices)
    : SharedDirectory(make_memory_file(bytes_for(devices + max_added)), devices, max_added) {
    const DirectoryHeader header{.magic = directory_magic,
                                 .version = directory_version,
                                 .devices = devices,
                                 .slabs = max_slabs,
                                 .added = 0,
                                 .records = {}};
    if (!descriptor_ || ::pwrite(descriptor_.get(), &header, fixed_bytes, 0) != fixed_bytes ||
        !map()) {
        fail_without_memory();
    }
}

std::variant<SharedDirectory, std::string> SharedDirectory::open(OwnedFd descriptor) {
    DirectoryHeader header{};
    if (::pread(descriptor.get(), &header, fixed_bytes, 0) != fixed_bytes ||
        header.magic != directory_magic) {
        return std::string("it is not a slab directory of gpunbd");
    }
    const bool is_known =
        header.version == directory_version || header.version == version_without_room;
    if (!is_known || header.slabs != max_slabs) {
        return fmt::format("its format is {} for {} slabs, and this gpunbd supports {} for {}",
                           header.version, header.slabs, directory_version, max_slabs);
    }
    const std::uint32_t room = header.version == version_without_room ? 0 : max_added;
    if (header.devices > max_devices - room) {
        return fmt::format("it has {} devices, and at most {} are possible", header.devices,
                           max_devices - room);
    }
    std::string reason = memory_file_error(descriptor, bytes_for(header.devices + room));
    if (!reason.empty()) return reason;
    SharedDirectory directory(std::move(descriptor), header.devices, room);
    if (!directory.map()) {
        return fmt::format("it cannot be mapped: {}", std::generic_category().message(errno));
    }
    if (room == 0) return directory;
    const DirectoryHeader& mapped = header_at(directory.base_);
    const std::uint64_t added = std::atomic_ref(header_at(directory.base_).added).load();
    const auto is_valid = [&](const DeviceRecord& record) {
        return record.home < header.devices && record.pages <= DeviceRecord::max_pages &&
               record.pages <= std::uint64_t{record.slab_pages} * record.slabs &&
               std::has_single_bit(record.slab_pages) && record.slabs != 0 &&
               record.slabs <= max_slabs;
    };
    if (added > room || !std::all_of(mapped.records, mapped.records + added, is_valid)) {
        return std::string("the records of its devices are inconsistent");
    }
    if (!directory.allow(header.devices, header.devices + static_cast<std::uint32_t>(added))) {
        return fmt::format("it cannot be mapped: {}", std::generic_category().message(errno));
    }
    return directory;
}

SharedDirectory::SharedDirectory(OwnedFd descriptor, std::uint32_t devices,
                                 std::uint32_t room) noexcept
    : descriptor_(std::move(descriptor)), devices_(devices), room_(room) {}

SharedDirectory::SharedDirectory(SharedDirectory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      devices_(other.devices_),
      room_(other.room_),
      base_(std::exchange(other.base_, nullptr)) {}

SharedDirectory::~SharedDirectory() {
    if (base_ != nullptr) ::munmap(base_, bytes_for(devices_ + room_));
}

bool SharedDirectory::map() {
    void* const mapped =
        ::mmap(nullptr, bytes_for(devices_ + room_), PROT_NONE, MAP_SHARED, descriptor_.get(), 0);
    if (mapped == MAP_FAILED) return false;
    base_ = static_cast<std::byte*>(mapped);
    return ::mprotect(base_, header_bytes, PROT_READ | PROT_WRITE) == 0 && allow(0, devices_);
}

bool SharedDirectory::allow(std::uint32_t first, std::uint32_t end) const noexcept {
    const std::uint64_t from = bytes_for(first);
    return ::mprotect(base_ + from, bytes_for(end) - from, PROT_READ | PROT_WRITE) == 0;
}

std::vector<TableShape::DeviceShare> SharedDirectory::added() const {
    std::vector<TableShape::DeviceShare> shares;
    if (room_ == 0) return shares;
    DirectoryHeader& header = header_at(base_);
    const std::uint64_t count = std::atomic_ref(header.added).load();
    for (std::uint64_t i = 0; i != count; ++i) shares.push_back(header.records[i].share());
    return shares;
}

bool SharedDirectory::make_room() const noexcept {
    if (room_ == 0) return false;
    const std::uint64_t count = std::atomic_ref(header_at(base_).added).load();
    const std::uint32_t next = devices_ + static_cast<std::uint32_t>(count);
    return count != room_ && allow(next, next + 1);
}

void SharedDirectory::add(const TableShape::DeviceShare& share) const noexcept {
    DirectoryHeader& header = header_at(base_);
    const std::uint64_t count = std::atomic_ref(header.added).load();
    GPUNBD_ASSERT(count < room_, "room is made for a device before it is added");
    GPUNBD_ASSERT(share.home < devices_, "spill memory belongs to a device of the layout");
    header.records[count] = DeviceRecord::of(share);
    std::atomic_ref(header.added).store(count + 1);
}

std::uint64_t* SharedDirectory::words_of(std::uint32_t device) const {
    GPUNBD_ASSERT(device < devices_ + room_, "each device of the volumes has a directory");
    return reinterpret_cast<std::uint64_t*>(base_ + header_bytes) + device * words_of_device;
}

bool SharedDirectory::in_use(std::uint32_t device) const {
    return std::atomic_ref(*words_of(device)).load() != 0;
}

void SharedDirectory::set_in_use(std::uint32_t device) const {
    std::atomic_ref(*words_of(device)).store(1);
}

}  // namespace gpunbd::storage
