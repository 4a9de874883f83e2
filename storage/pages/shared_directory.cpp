#include "storage/pages/shared_directory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "storage/base/memory_file.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t directory_magic = 0x31736261'6c536e67;  // "gnSlabs1"
constexpr std::uint32_t directory_version = 1;
constexpr std::size_t header_bytes = 4096;  // a memory page
constexpr std::size_t words_of_device = std::size_t{SharedDirectory::max_slabs} + 1;

struct DirectoryHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t devices;
    std::uint64_t slabs;  // of each device
};
static_assert(sizeof(DirectoryHeader) == 24);

std::uint64_t bytes_for(std::uint32_t devices) {
    const std::uint64_t words = devices * words_of_device * sizeof(std::uint64_t);
    return header_bytes + (words + header_bytes - 1) / header_bytes * header_bytes;
}

std::byte* map_directory(const OwnedFd& descriptor, std::uint32_t devices) {
    void* const mapped = ::mmap(nullptr, bytes_for(devices), PROT_READ | PROT_WRITE, MAP_SHARED,
                                descriptor.get(), 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

[[noreturn]] void fail_without_memory() {
    throw std::system_error(errno, std::generic_category(), "no memory for a slab directory");
}

}  // namespace

SharedDirectory::SharedDirectory(std::uint32_t devices)
    : descriptor_(make_memory_file(bytes_for(devices))), devices_(devices) {
    const DirectoryHeader header{.magic = directory_magic,
                                 .version = directory_version,
                                 .devices = devices,
                                 .slabs = max_slabs};
    if (!descriptor_ || ::pwrite(descriptor_.get(), &header, sizeof header, 0) != sizeof header) {
        fail_without_memory();
    }
    base_ = map_directory(descriptor_, devices);
    if (base_ == nullptr) fail_without_memory();
}

std::variant<SharedDirectory, std::string> SharedDirectory::open(OwnedFd descriptor) {
    DirectoryHeader header{};
    if (::pread(descriptor.get(), &header, sizeof header, 0) != sizeof header ||
        header.magic != directory_magic) {
        return std::string("it is not a slab directory of gpunbd");
    }
    if (header.version != directory_version || header.slabs != max_slabs) {
        return fmt::format("its format is {} for {} slabs, and this gpunbd supports {} for {}",
                           header.version, header.slabs, directory_version, max_slabs);
    }
    std::string reason = memory_file_error(descriptor, bytes_for(header.devices));
    if (!reason.empty()) return reason;
    std::byte* const base = map_directory(descriptor, header.devices);
    if (base == nullptr) {
        return fmt::format("it cannot be mapped: {}", std::generic_category().message(errno));
    }
    return SharedDirectory(std::move(descriptor), header.devices, base);
}

SharedDirectory::SharedDirectory(OwnedFd descriptor, std::uint32_t devices,
                                 std::byte* base) noexcept
    : descriptor_(std::move(descriptor)), devices_(devices), base_(base) {}

SharedDirectory::SharedDirectory(SharedDirectory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      devices_(other.devices_),
      base_(std::exchange(other.base_, nullptr)) {}

SharedDirectory::~SharedDirectory() {
    if (base_ != nullptr) ::munmap(base_, bytes_for(devices_));
}

std::uint64_t* SharedDirectory::words_of(std::uint32_t device) const {
    return reinterpret_cast<std::uint64_t*>(base_ + header_bytes) + device * words_of_device;
}

bool SharedDirectory::in_use(std::uint32_t device) const {
    return std::atomic_ref(*words_of(device)).load() != 0;
}

void SharedDirectory::set_in_use(std::uint32_t device) const {
    std::atomic_ref(*words_of(device)).store(1);
}

}  // namespace gpunbd::storage
