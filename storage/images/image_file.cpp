#include "storage/images/image_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "storage/images/compressed_format.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::size_t direct_alignment = 4096;              // of memory, length and offset
constexpr std::size_t longest_read = std::size_t{8} << 20;  // bytes of one call
constexpr std::uint64_t max_size = std::uint64_t{1} << 62;  // of the contents, as of an export

// Whether the file begins with a frame of zstd, or with a skippable one.
bool is_zstd(std::span<const std::byte> head) {
    constexpr std::uint32_t frame = 0xFD2FB528;
    constexpr std::uint32_t skippable = 0x184D2A50;  // to 0x184D2A5F
    std::uint32_t magic = 0;
    for (std::size_t i = 0; i != sizeof magic; ++i) {
        magic |= static_cast<std::uint32_t>(head[i]) << (8 * i);
    }
    return magic == frame || (magic & ~std::uint32_t{0xF}) == skippable;
}

}  // namespace

std::string ImageFile::open() {
    fd_ = OwnedFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_) return problem(std::strerror(errno));
    if (::fstat(fd_.get(), &opened_) != 0) return problem(std::strerror(errno));
    if (!S_ISREG(opened_.st_mode) && !S_ISBLK(opened_.st_mode)) {
        return problem("it is neither a file nor a block device");
    }
    const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
    if (end < 0) return problem(std::strerror(errno));
    direct_ = OwnedFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT));
    struct stat its {};
    const bool same = direct_ && ::fstat(direct_.get(), &its) == 0 &&
                      its.st_dev == opened_.st_dev && its.st_ino == opened_.st_ino;
    if (!same) direct_ = OwnedFd();  // the file was replaced just now
    file_size_ = size_ = static_cast<std::uint64_t>(end);
    if (size_ == 0) return problem("it is empty");
    std::array<std::byte, ImageRecord::bytes> head{};
    const std::span<std::byte> known =
        std::span(head).first(std::min<std::uint64_t>(size_, head.size()));
    if (std::string why = read(0, known); !why.empty()) return why;
    const auto record = ImageRecord::decode(head);
    if (!record) {
        if (!is_zstd(head)) return {};
        return problem(
            "it is compressed by zstd, but is no complete file of gpunbd export save; "
            "decompress it with zstd -d, and restore the result");
    }
    if (record->kind != ImageRecord::Kind::image) return problem("it is damaged: it has no size");
    if (record->length == 0 || record->length > max_size) {
        return problem(fmt::format("it is damaged: its size is {} bytes", record->length));
    }
    compressed_ = true;
    size_ = record->length;
    return {};
}

bool ImageFile::changed() const {
    struct stat now {};
    if (::fstat(fd_.get(), &now) != 0) return true;
    if (!S_ISREG(now.st_mode)) return false;
    return now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
}

std::string ImageFile::read(std::uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
        std::size_t got = 0;
        if (std::string why = read_once(offset, to, got); !why.empty()) return why;
        if (got == 0) return problem("it is damaged: it is too short");
        offset += got;
        to = to.subspan(got);
    }
    return {};
}

std::string ImageFile::read_once(std::uint64_t offset, std::span<std::byte> to,
                                 std::size_t& got) const {
    const std::size_t part = std::min(to.size() - to.size() % direct_alignment, longest_read);
    const auto address = reinterpret_cast<std::uintptr_t>(to.data());
    if (direct_ && part != 0 && (address | offset) % direct_alignment == 0) {
        const iovec memory{.iov_base = to.data(), .iov_len = part};
        ssize_t read = ::preadv2(fd_.get(), &memory, 1, static_cast<off_t>(offset), RWF_NOWAIT);
        if (read <= 0) read = ::pread(direct_.get(), to.data(), part, static_cast<off_t>(offset));
        if (read > 0) {
            got = static_cast<std::size_t>(read);
            return {};
        }
        // The end, a disk with larger blocks, the mapping of a device, or an error, which the next
        // call finds too.
    }
    return read_some(offset, to, got);
}

std::string ImageFile::read_some(std::uint64_t offset, std::span<std::byte> to,
                                 std::size_t& got) const {
    for (;;) {
        const ssize_t read = ::pread(fd_.get(), to.data(), std::min(to.size(), longest_read),
                                     static_cast<off_t>(offset));
        if (read < 0 && errno == EINTR) continue;
        if (read < 0) return problem(std::strerror(errno));
        got = static_cast<std::size_t>(read);
        return {};
    }
}

std::optional<ImageFile::Extent> ImageFile::next_data(std::uint64_t offset) const {
    const off_t data = ::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return std::nullopt;
    if (data < 0) return offset == size_ ? std::nullopt : std::optional(Extent{offset, size_});
    // The file has grown since open().
    if (static_cast<std::uint64_t>(data) >= size_) return std::nullopt;
    const off_t hole = ::lseek(fd_.get(), data, SEEK_HOLE);
    return Extent{static_cast<std::uint64_t>(data),
                  hole < 0 ? size_ : std::min(size_, static_cast<std::uint64_t>(hole))};
}

}  // namespace gpunbd::storage
