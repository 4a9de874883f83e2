#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

// The format of compressed images: zstd frames that decompress to the whole contents, and before
// each run of data or of holes a skippable frame, a record, which describes it. So `zstd -d` makes
// a raw image of it, and a reader of the records skips holes.
struct ImageRecord {
    // The first record has the size of the contents, and the last one has it again.
    enum class Kind : std::uint64_t { image = 1, data, hole, end };
    Kind kind = Kind::image;
    std::uint64_t length = 0;  // bytes of the contents
    std::uint64_t skip = 0;    // of a hole: bytes of the file until the next record

    static constexpr std::size_t bytes = 40;
    std::array<std::byte, bytes> encode() const;
    // Empty: it is no record.
    static std::optional<ImageRecord> decode(std::span<const std::byte, bytes> from);
    bool operator==(const ImageRecord&) const = default;
};

// An image that is opened to be read, raw or compressed.
class ImageFile {
 public:
    explicit ImageFile(std::string path) : path_(std::move(path)) {}

    // Each returns an error, if there is one.
    std::optional<std::string> open();
    // After open(), for a file that has to stay as it is: a file gets a shared lock (flock(2))
    // until this object ends, and a block device must not be mounted now. The next server of an
    // upgrade can do the same meanwhile.
    std::optional<std::string> claim() const;
    std::uint64_t size() const { return size_; }  // of the contents
    std::uint64_t file_size() const { return file_size_; }
    bool compressed() const { return compressed_; }
    bool is_block_device() const { return S_ISBLK(opened_.st_mode); }
    const struct stat& opened() const { return opened_; }  // the state at open()
    // Whether this is a descriptor of the same file.
    bool is_opened_as(const OwnedFd& other) const;
    // Whether another program has written or resized the file since open(), so that what was read
    // may be of no one state.
    bool changed() const;
    // Exactly that many bytes of the file. What is not in the page cache does not get there.
    std::optional<std::string> read(std::uint64_t offset, std::span<std::byte> to) const;
    // Up to that many; sets the number.
    std::optional<std::string> read_some(std::uint64_t offset, std::span<std::byte> to,
                                         std::size_t& got) const;
    // The data of a raw image from `offset` on, as a range within size(); empty: only holes follow.
    struct Extent {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
    };
    std::optional<Extent> next_data(std::uint64_t offset) const;
    std::string problem(const std::string& what) const { return path_ + ": " + what; }

 private:
    std::optional<std::string> read_once(std::uint64_t offset, std::span<std::byte> to,
                                         std::size_t& got) const;

    const std::string path_;
    OwnedFd fd_;
    OwnedFd direct_;         // past the page cache; empty: the file system does not allow it
    struct stat opened_ {};  // the state at open()
    std::uint64_t file_size_ = 0;
    std::uint64_t size_ = 0;
    bool compressed_ = false;
};

}  // namespace gpunbd::storage
