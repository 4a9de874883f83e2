#include "storage/images/image_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gpunbd::storage {

namespace {

constexpr std::uint32_t skippable_frame = 0x184D2A5C;
constexpr std::uint64_t tag = 0x31676d6962756e67;  // "gnubimg1"
constexpr std::size_t frame_head = 8;              // bytes

template <class Number>
void store(std::byte* to, Number value) {
    for (std::size_t i = 0; i != sizeof value; ++i) {
        to[i] = static_cast<std::byte>(value >> (8 * i));
    }
}

template <class Number>
Number load(const std::byte* from) {
    Number value = 0;
    for (std::size_t i = 0; i != sizeof value; ++i) {
        value |= static_cast<Number>(from[i]) << (8 * i);
    }
    return value;
}

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

std::array<std::byte, ImageRecord::bytes> ImageRecord::encode() const {
    std::array<std::byte, bytes> out{};
    store(out.data(), skippable_frame);
    store(out.data() + 4, static_cast<std::uint32_t>(bytes - frame_head));
    store(out.data() + 8, tag);
    store(out.data() + 16, static_cast<std::uint64_t>(kind));
    store(out.data() + 24, length);
    store(out.data() + 32, skip);
    return out;
}

std::optional<ImageRecord> ImageRecord::decode(std::span<const std::byte, bytes> from) {
    const auto kind = load<std::uint64_t>(from.data() + 16);
    if (load<std::uint32_t>(from.data()) != skippable_frame ||
        load<std::uint32_t>(from.data() + 4) != bytes - frame_head ||
        load<std::uint64_t>(from.data() + 8) != tag ||
        kind < static_cast<std::uint64_t>(Kind::image) ||
        kind > static_cast<std::uint64_t>(Kind::end)) {
        return std::nullopt;
    }
    return ImageRecord{.kind = static_cast<Kind>(kind),
                       .length = load<std::uint64_t>(from.data() + 24),
                       .skip = load<std::uint64_t>(from.data() + 32)};
}

std::optional<std::string> ImageFile::open() {
    fd_ = OwnedFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_) return problem(std::strerror(errno));
    if (::fstat(fd_.get(), &opened_) != 0) return problem(std::strerror(errno));
    if (!S_ISREG(opened_.st_mode) && !S_ISBLK(opened_.st_mode)) {
        return problem("it is neither a file nor a block device");
    }
    const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
    if (end < 0) return problem(std::strerror(errno));
    direct_ = OwnedFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT));
    if (direct_ && !is_opened_as(direct_)) direct_ = OwnedFd();  // it was replaced just now
    file_size_ = size_ = static_cast<std::uint64_t>(end);
    if (size_ == 0) return problem("it is empty");
    std::array<std::byte, ImageRecord::bytes> head{};
    const std::span<std::byte> known =
        std::span(head).first(std::min<std::uint64_t>(size_, head.size()));
    if (auto why = read(0, known)) return why;
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

std::optional<std::string> ImageFile::claim() const {
    if (S_ISBLK(opened_.st_mode)) {
        const OwnedFd exclusive(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
        if (exclusive) return {};
        return problem(errno == EBUSY ? "it is mounted or in use" : std::strerror(errno));
    }
    if (::flock(fd_.get(), LOCK_SH | LOCK_NB) == 0) return {};
    return problem(errno == EWOULDBLOCK ? "another program has locked it" : std::strerror(errno));
}

bool ImageFile::is_opened_as(const OwnedFd& other) const {
    struct stat its {};
    return ::fstat(other.get(), &its) == 0 && its.st_dev == opened_.st_dev &&
           its.st_ino == opened_.st_ino;
}

bool ImageFile::changed() const {
    struct stat now {};
    if (::fstat(fd_.get(), &now) != 0) return true;
    if (!S_ISREG(now.st_mode)) return false;
    return now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
}

std::optional<std::string> ImageFile::read(std::uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
        std::size_t got = 0;
        if (auto why = read_once(offset, to, got)) return why;
        if (got == 0) return problem("it is damaged: it is too short");
        offset += got;
        to = to.subspan(got);
    }
    return {};
}

std::optional<std::string> ImageFile::read_once(std::uint64_t offset, std::span<std::byte> to,
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

std::optional<std::string> ImageFile::read_some(std::uint64_t offset, std::span<std::byte> to,
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
