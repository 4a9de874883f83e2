#include "storage/base/memory_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace gpunbd::storage {

namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::uint64_t block = 512;  // bytes: the unit of st_blocks

OwnedFd open_memory_file() {
    constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int descriptor = ::memfd_create("gpunbd slab", flags | MFD_NOEXEC_SEAL);
    if (descriptor >= 0 || errno != EINVAL) return OwnedFd(descriptor);
    return OwnedFd(::memfd_create("gpunbd slab", flags));  // kernels before 6.3
}

}  // namespace

OwnedFd make_memory_file(std::uint64_t bytes) {
    OwnedFd file = open_memory_file();
    if (!file) return file;
    // F_SEAL_SEAL: no process can forbid writing by another seal.
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0 &&
        ::fcntl(file.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) == 0) {
        return file;
    }
    const int error = errno;
    file = OwnedFd();
    errno = error;
    return file;
}

std::string memory_file_error(const OwnedFd& file, std::uint64_t bytes) {
    const int access = ::fcntl(file.get(), F_GETFL);
    if (access < 0) return std::strerror(errno);
    const int seals = ::fcntl(file.get(), F_GET_SEALS);
    if (seals < 0) return "it is not a memory file";
    if ((seals & size_seals) != size_seals) return "its size is not sealed";
    if ((access & O_ACCMODE) != O_RDWR) return "it is not open for reading and writing";
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) return std::strerror(errno);
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    return size == bytes ? std::string() : fmt::format("it has {} bytes, not {}", size, bytes);
}

std::uint64_t bytes_in_memory_file(int file) {
    struct stat facts {};
    if (::fstat(file, &facts) != 0) return 0;
    return static_cast<std::uint64_t>(facts.st_blocks) * block;
}

bool punch_memory_file(const OwnedFd& file, std::uint64_t offset, std::uint64_t bytes) {
    return ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

}  // namespace gpunbd::storage
