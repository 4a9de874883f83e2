#include "storage/origins/origin_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/origins/fingerprint.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::size_t direct_alignment = 4096;  // of memory, length and offset

}  // namespace

std::variant<std::unique_ptr<OriginFile>, std::string> OriginFile::open(const std::string& path,
                                                                        Kind kind, bool is_writable,
                                                                        OwnedFd lock) {
    std::unique_ptr<OriginFile> out(new OriginFile(path));
    ImageFile& file = out->file_;
    if (auto why = file.open()) return *std::move(why);
    if (file.is_block_device() != (kind == Kind::block_device)) {
        return file.problem(file.is_block_device() ? "it is a block device; write device: before it"
                                                   : "it is a file; write file: before it");
    }
    if (file.compressed()) {
        return file.problem("it is compressed; decompress it with zstd -d, and use the result");
    }
    auto why = is_writable ? out->open_for_writing(std::move(lock)) : file.claim();
    if (why) return *std::move(why);
    return out;
}

Origin::Error OriginFile::open_for_writing(OwnedFd lock) {
    const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | (file_.is_block_device() ? O_EXCL : 0);
    writer_ = lock ? std::move(lock) : OwnedFd(::open(path_.c_str(), flags));
    if (!writer_) {
        return file_.problem(errno == EBUSY ? "it is mounted or in use" : std::strerror(errno));
    }
    if (!file_.is_opened_as(writer_)) return file_.problem("it was replaced just now; try again");
    if (!file_.is_block_device() && ::flock(writer_.get(), LOCK_EX | LOCK_NB) != 0) {
        return file_.problem(errno == EWOULDBLOCK ? "another program or export has locked it"
                                                  : std::strerror(errno));
    }
    direct_writer_ = OwnedFd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_DIRECT));
    if (direct_writer_ && !file_.is_opened_as(direct_writer_)) direct_writer_ = OwnedFd();
    return {};
}

SourceId OriginFile::id() const {
    const struct stat& file = file_.opened();
    if (file_.is_block_device()) return {file.st_rdev, 0};
    return {file.st_dev, file.st_ino};
}

SourceId OriginFile::id_of_contents() const {
    const struct stat& file = file_.opened();
    if (writer_) return id();
    if (file_.is_block_device()) return {file.st_rdev, file_.size()};
    return {Fingerprint()
                .add(file.st_dev)
                .add(file.st_mtim.tv_sec)
                .add(file.st_mtim.tv_nsec)
                .add(file_.size())
                .value(),
            file.st_ino};
}

std::optional<Origin::Extent> OriginFile::next_data(std::uint64_t offset) const {
    const auto found = file_.next_data(offset);
    if (!found) return std::nullopt;
    return Extent{.begin = found->begin, .end = found->end};
}

Origin::Error OriginFile::do_read(std::uint64_t offset, std::span<std::byte> to) {
    if (auto why = file_.read(offset, to)) return why;
    // Some of the pages in memory may be older.
    if (!writer_ && file_.changed()) {
        return file_.problem("another program has written to it; restart the server");
    }
    return {};
}

Origin::Error OriginFile::do_write(std::uint64_t offset, std::span<const std::byte> from) {
    const auto address = reinterpret_cast<std::uintptr_t>(from.data());
    while (direct_writer_ && (address | offset) % direct_alignment == 0) {
        const std::size_t part = from.size() - from.size() % direct_alignment;
        if (part == 0) break;
        const ssize_t done =
            ::pwrite(direct_writer_.get(), from.data(), part, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        // A disk with larger blocks, the mapping of a device, or an error, which the next call
        // finds too.
        if (done <= 0 || static_cast<std::size_t>(done) % direct_alignment != 0) break;
        offset += static_cast<std::uint64_t>(done);
        from = from.subspan(static_cast<std::size_t>(done));
    }
    return write_buffered(offset, from);
}

Origin::Error OriginFile::write_buffered(std::uint64_t offset, std::span<const std::byte> from) {
    while (!from.empty()) {
        const ssize_t done =
            ::pwrite(writer_.get(), from.data(), from.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return file_.problem(std::strerror(errno));
        if (done == 0) return file_.problem("it cannot be written to");
        offset += static_cast<std::uint64_t>(done);
        from = from.subspan(static_cast<std::size_t>(done));
    }
    return {};
}

Origin::Error OriginFile::do_zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) {
    const int mode =
        (keeps_space ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE) | FALLOC_FL_KEEP_SIZE;
    while (can_zero_) {
        if (::fallocate(writer_.get(), mode, static_cast<off_t>(offset),
                        static_cast<off_t>(length)) == 0) {
            return {};
        }
        if (errno == EINTR) continue;
        // Other errors, as of a range that is not aligned for a block device, concern this range.
        if (errno == EOPNOTSUPP && !keeps_space) can_zero_ = false;
        break;
    }
    return write_zeroes(offset, length);
}

Origin::Error OriginFile::do_flush() {
    if (::fdatasync(writer_.get()) == 0) return {};
    return file_.problem(std::strerror(errno));
}

}  // namespace gpunbd::storage
