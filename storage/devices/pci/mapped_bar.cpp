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
#include <utility>

#include "storage/devices/device_driver.hpp"

namespace gpunbd::storage {

namespace {

std::string cannot(const char* what, const std::string& file, int error) {
    const char* remedy = "";
    if (error == EACCES) remedy = "; serve as root";
    if (error == EROFS) remedy = "; the service may not change /sys (ProtectKernelTunables=)";
    if (error == EPERM) remedy = "; the kernel's lockdown (Secure Boot) may forbid it";
    if (error == EINVAL) remedy = "; a driver may have it for itself";
    return fmt::format("{} cannot be {}: {}{}", file, what, std::strerror(error), remedy);
}

struct OpenBar {
    explicit OpenBar(const std::string& path)
        : descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)) {}
    ~OpenBar() {
        if (descriptor >= 0) ::close(descriptor);
    }
    OpenBar(const OpenBar&) = delete;
    OpenBar& operator=(const OpenBar&) = delete;
    int release() { return std::exchange(descriptor, -1); }

    int descriptor;
};

int open_locked(const std::string& path) {
    OpenBar file(path);
    if (file.descriptor < 0) throw std::runtime_error(cannot("opened", path, errno));
    if (::flock(file.descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) throw DeviceTaken("another gpunbd serves it");
        throw std::runtime_error(cannot("locked", path, errno));
    }
    return file.release();
}

// Until then nothing answers at its addresses. It stays on: other BARs of it may be in use by then.
void switch_on(const std::string& path) {
    OpenBar file(path);
    if (file.descriptor < 0) throw std::runtime_error(cannot("opened", path, errno));
    if (::write(file.descriptor, "1", 1) != 1) {
        throw std::runtime_error(cannot("written", path, errno));
    }
}

std::byte* map_bar(int descriptor, const std::string& path, std::uint64_t bytes) {
    struct stat facts {};
    // To touch what is not there would end the server.
    if (::fstat(descriptor, &facts) != 0 || static_cast<std::uint64_t>(facts.st_size) < bytes) {
        throw std::runtime_error(
            fmt::format("{} has {} bytes, not {}", path, facts.st_size, bytes));
    }
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) throw std::runtime_error(cannot("mapped", path, errno));
    return static_cast<std::byte*>(at);
}

}  // namespace

MappedBar::MappedBar(const PciCard& card, std::uint32_t number, std::uint64_t bytes)
    : lock_(-1), bytes_(bytes) {
    const std::string path = fmt::format("{}/resource{}", card.folder, number);
    const std::string combined = path + "_wc";
    lock_ = open_locked(path);
    try {
        if (!card.enabled) switch_on(card.folder + "/enable");
        const OpenBar file(combined);
        write_combined_ = file.descriptor >= 0;
        if (write_combined_) {
            data_ = map_bar(file.descriptor, combined, bytes);
        } else if (errno == ENOENT) {
            data_ = map_bar(lock_, path, bytes);
        } else {
            throw std::runtime_error(cannot("opened", combined, errno));
        }
    } catch (...) {
        ::close(lock_);
        throw;
    }
}

MappedBar::~MappedBar() {
    ::munmap(data_, bytes_);
    ::close(lock_);
}

}  // namespace gpunbd::storage
