#include "storage/devices/file/spill_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "storage/devices/device_driver.hpp"
#include "storage/devices/file/blocks.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::string_view header_text = "gpunbd spill file, discarded when it is opened\n";

bool has_header(int file) {
    std::array<char, header_text.size()> seen{};
    return ::pread(file, seen.data(), seen.size(), 0) == ssize_t{seen.size()} &&
           std::string_view(seen.data(), seen.size()) == header_text;
}

bool write_header(int file) {
    return ::pwrite(file, header_text.data(), header_text.size(), 0) == ssize_t{header_text.size()};
}

// Opening is not to block on a FIFO. With O_NONBLOCK, kernels before 6.5 fail I/O that would block
// by EAGAIN, again and again. A read that changed the time of access could wait for the journal of
// the file system: see UringQueue::prepare(). Only the owner may set O_NOATIME.
void set_flags_for_io(int file) {
    const int flags = ::fcntl(file, F_GETFL);
    if (flags < 0) return;
    ::fcntl(file, F_SETFL, flags & ~O_NONBLOCK);
    ::fcntl(file, F_SETFL, (flags & ~O_NONBLOCK) | O_NOATIME);
}

using Block = std::array<std::byte, block_bytes>;

// The first direct write to a file system that is not waited for makes the kernel allocate a work
// queue, which may wait for memory. So this write is made before swap depends on the file. Errors
// are ignored: the first write of a page would have them, too.
void write_once(int file, Block& first_block) {
    io_uring ring{};
    if (::io_uring_queue_init(1, &ring, 0) != 0) return;
    if (io_uring_sqe* const entry = ::io_uring_get_sqe(&ring); entry != nullptr) {
        ::io_uring_prep_write(entry, file, first_block.data(), block_bytes, 0);
        ::io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
        io_uring_cqe* ended = nullptr;
        const int result = ::io_uring_submit(&ring);
        while (result == 1 && ::io_uring_wait_cqe(&ring, &ended) == -EINTR) continue;
    }
    ::io_uring_queue_exit(&ring);
}

// Without the page cache, I/O does not compete with others for memory. Some file systems accept
// the flag and refuse the reads.
bool set_direct(int file) {
    const int flags = ::fcntl(file, F_GETFL);
    if (flags < 0 || ::fcntl(file, F_SETFL, flags | O_DIRECT) != 0) return false;
    alignas(block_bytes) Block block;
    if (::pread(file, block.data(), block.size(), 0) == ssize_t{block_bytes}) {
        write_once(file, block);
        return true;
    }
    ::fcntl(file, F_SETFL, flags);
    return false;
}

// Otherwise btrfs takes new space whenever a reserved block is written again. Other file systems
// need no flag and refuse it. The file is empty.
void write_in_place(int file) {
    int flags = 0;
    if (::ioctl(file, FS_IOC_GETFLAGS, &flags) != 0) return;
    flags |= FS_NOCOW_FL;
    ::ioctl(file, FS_IOC_SETFLAGS, &flags);
}

// Returns 0 or errno.
int allocate_blocks(int file, std::uint64_t bytes) {
    int result = 0;
    do result = ::fallocate(file, 0, 0, static_cast<off_t>(bytes));
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

[[noreturn]] void refuse(const std::string& reason) { throw std::runtime_error(reason); }

[[noreturn]] void refuse_call(std::string_view action, int error) {
    refuse(fmt::format("it cannot be {}: {}", action, std::strerror(error)));
}

std::string text_of_size(std::uint64_t bytes) {
    constexpr std::uint64_t mib = 1 << 20;
    return bytes >= mib ? fmt::format("{} MiB", bytes / mib) : fmt::format("{} bytes", bytes);
}

}  // namespace

SpillFile::SpillFile(std::string path, std::uint64_t bytes) : path_(std::move(path)) {
    // The kernel would end the process by SIGXFSZ.
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < header_bytes + bytes) {
        refuse("it would exceed the limit of this process for files (LimitFSIZE=, ulimit -f)");
    }
    open();
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) throw DeviceInUse("another gpunbd uses it");
        refuse_call("locked", errno);
    }
    verify();
    set_flags_for_io(file_.get());
    reserve(bytes);
}

SpillFile::~SpillFile() {
    static_cast<void>(::ftruncate(file_.get(), 0));
    // While it is locked, so that it is still this file. Another user may have to create the next.
    if (created_) ::unlink(path_.c_str());
}

void SpillFile::open() {
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    file_ = OwnedFd(::open(path_.c_str(), flags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR));
    created_ = static_cast<bool>(file_);
    if (created_) {
        // The umask may have removed permissions of the owner.
        if (::fchmod(file_.get(), S_IRUSR | S_IWUSR) != 0) refuse_call("given its mode", errno);
        return;
    }
    if (errno == EEXIST) file_ = OwnedFd(::open(path_.c_str(), flags));
    if (file_) return;
    if (errno == ELOOP) refuse("it is a symbolic link, or its folder is a loop of them");
    if (errno == EISDIR) refuse("it is a folder; name a file in it");
    if (errno == ENOENT) {
        refuse(fmt::format("the folder {} does not exist; create it",
                           std::filesystem::path(path_).parent_path().string()));
    }
    refuse_call("opened", errno);
}

// A wrong path must not destroy a file of others, nor let others read the pages.
void SpillFile::verify() const {
    struct stat seen {};
    if (::fstat(file_.get(), &seen) != 0) refuse_call("examined", errno);
    if (!S_ISREG(seen.st_mode)) refuse("it is not a regular file");
    if (seen.st_uid != ::geteuid()) {
        refuse(fmt::format("it belongs to the user {}, not to {}, as which gpunbd runs",
                           seen.st_uid, ::geteuid()));
    }
    if (seen.st_nlink != 1) refuse("it has been removed, or has other hard links");
    if ((seen.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        refuse("others have permissions for it; chmod 600 it, or remove it");
    }
    if (seen.st_size != 0 && !has_header(file_.get())) {
        refuse("it is neither empty nor a spill file of gpunbd; choose another name, or remove it");
    }
}

void SpillFile::reserve(std::uint64_t bytes) {
    const std::uint64_t all = header_bytes + bytes;
    if (::ftruncate(file_.get(), 0) != 0) refuse_call("truncated", errno);
    write_in_place(file_.get());
    struct statvfs system {};
    const bool known = ::fstatvfs(file_.get(), &system) == 0 && system.f_blocks != 0;
    const std::uint64_t available = system.f_bavail * system.f_frsize;
    int error = 0;
    if (known && available < all) {
        error = ENOSPC;  // without filling the file system first
    } else if (!write_header(file_.get())) {
        error = errno;
    } else {
        error = allocate_blocks(file_.get(), all);
    }
    if (error == 0) {
        direct_ = set_direct(file_.get());
        return;
    }
    static_cast<void>(::ftruncate(file_.get(), 0));
    if (created_) ::unlink(path_.c_str());
    if (error == ENOSPC && known) {
        refuse(fmt::format("{} cannot be reserved: its file system has {} available",
                           text_of_size(all), text_of_size(available)));
    }
    if (error == EOPNOTSUPP) {
        refuse("its file system cannot reserve space; choose one that can, such as ext4 or xfs");
    }
    refuse(fmt::format("{} cannot be reserved: {}", text_of_size(all), std::strerror(error)));
}

}  // namespace gpunbd::storage
