#include "storage/images/replaced_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t window = std::uint64_t{8} << 20;  // bytes that are written back together
constexpr std::uint64_t windows_in_flight = 4;

}  // namespace

ReplacedFile::~ReplacedFile() {
    if (!draft_.empty()) ::unlink(draft_.c_str());
}

std::string ReplacedFile::problem(int error) const {
    return fmt::format("{}: {}", path_, std::strerror(error));
}

std::optional<std::string> ReplacedFile::create() {
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        return fmt::format("{}: it exists and is not a regular file; choose another path", path_);
    }
    std::string draft = path_ + ".XXXXXX";
    fd_ = OwnedFd(::mkostemp(draft.data(), O_CLOEXEC));
    if (!fd_) return problem(errno);
    draft_ = std::move(draft);
    return {};
}

std::optional<std::string> ReplacedFile::append(const void* data, std::size_t length) {
    constexpr std::size_t longest = std::size_t{8} << 20;  // bytes of one call
    const auto* at = static_cast<const std::byte*>(data);
    while (length != 0) {
        const ssize_t written =
            ::pwrite(fd_.get(), at, std::min(length, longest), static_cast<off_t>(size_));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return problem(errno);
        at += written;
        length -= static_cast<std::size_t>(written);
        size_ += static_cast<std::size_t>(written);
    }
    return write_back();
}

// Without this, the disk would be idle until fsync(), and all of the file would stay in memory.
std::optional<std::string> ReplacedFile::write_back() {
    constexpr unsigned wait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const auto sync = [this](std::uint64_t offset, unsigned flags) {
        return ::sync_file_range(fd_.get(), static_cast<off_t>(offset), window, flags) == 0;
    };
    while (size_ - written_back_ >= window) {
        const std::uint64_t begin = written_back_;
        written_back_ += window;
        const bool is_full = begin >= windows_in_flight * window;
        const std::uint64_t oldest = is_full ? begin - windows_in_flight * window : 0;
        const bool is_synced =
            sync(begin, SYNC_FILE_RANGE_WRITE) && (!is_full || sync(oldest, wait));
        // fsync() does not report these again. Others are of file systems without this call.
        if (!is_synced && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
            return problem(errno);
        }
        if (is_full) {
            ::posix_fadvise(fd_.get(), static_cast<off_t>(oldest), window, POSIX_FADV_DONTNEED);
        }
    }
    return {};
}

std::optional<std::string> ReplacedFile::skip(std::uint64_t length) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_ + length)) != 0) return problem(errno);
    size_ += length;
    return {};
}

std::optional<std::string> ReplacedFile::publish() {
    if (::fsync(fd_.get()) != 0) return problem(errno);
    if (::rename(draft_.c_str(), path_.c_str()) != 0) return problem(errno);
    draft_.clear();
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const OwnedFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened || ::fsync(opened.get()) != 0) return problem(errno);
    return {};
}

}  // namespace gpunbd::storage
