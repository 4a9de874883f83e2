#include "storage/devices/pci/mapped_bar.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "storage/base/private_memory.hpp"
#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

namespace {

std::string cannot(const char* what, const std::string& file, int error) {
    const char* remedy = "";
    if (error == EACCES) remedy = "; serve as root";
    if (error == EROFS) remedy = "; the service may not change /sys (ProtectKernelTunables=)";
    if (error == EPERM) remedy = "; the kernel's lockdown (Secure Boot) may forbid it";
    if (error == EINVAL) remedy = "; a driver may use it exclusively";
    return fmt::format("{} cannot be {}: {}{}", file, what, std::strerror(error), remedy);
}

// On failure, returns no descriptor and sets errno.
OwnedFd open_file(const std::string& path) {
    return OwnedFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
}

OwnedFd open_locked(const std::string& path) {
    OwnedFd file = open_file(path);
    if (!file) throw std::runtime_error(cannot("opened", path, errno));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) throw DeviceInUse("another gpunbd serves it");
        throw std::runtime_error(cannot("locked", path, errno));
    }
    return file;
}

std::string path_of(const PciCard& card, std::uint32_t number) {
    return fmt::format("{}/resource{}", card.folder, number);
}

// Before this, the card does not respond to memory accesses. It stays enabled, since other BARs may
// be in use.
void switch_on(const std::string& path) {
    const OwnedFd file = open_file(path);
    if (!file) throw std::runtime_error(cannot("opened", path, errno));
    if (::write(file.get(), "1", 1) != 1) {
        throw std::runtime_error(cannot("written", path, errno));
    }
}

std::byte* map_bar(const OwnedFd& file, const std::string& path, std::uint64_t bytes) {
    struct stat facts {};
    // Accesses beyond the end of the file would kill the server.
    if (::fstat(file.get(), &facts) != 0 || static_cast<std::uint64_t>(facts.st_size) < bytes) {
        throw std::runtime_error(
            fmt::format("{} has {} bytes, not {}", path, facts.st_size, bytes));
    }
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (at == MAP_FAILED) throw std::runtime_error(cannot("mapped", path, errno));
    exclude_from_forks(at, bytes);
    return static_cast<std::byte*>(at);
}

}  // namespace

MappedBar::MappedBar(const PciCard& card, std::uint32_t number, std::uint64_t bytes)
    : lock_(open_locked(path_of(card, number))), bytes_(bytes) {
    const std::string path = path_of(card, number);
    const std::string combined = path + "_wc";
    if (!card.enabled) switch_on(card.folder + "/enable");
    const OwnedFd file = open_file(combined);
    write_combined_ = static_cast<bool>(file);
    if (write_combined_) {
        data_ = map_bar(file, combined, bytes);
    } else if (errno == ENOENT) {
        data_ = map_bar(lock_, path, bytes);
    } else {
        throw std::runtime_error(cannot("opened", combined, errno));
    }
}

MappedBar::~MappedBar() { ::munmap(data_, bytes_); }

}  // namespace gpunbd::storage
