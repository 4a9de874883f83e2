// The format of compressed images: zstd frames that decompress to the whole contents, and before
// each run of data or of holes a skippable frame, a record, which describes it. So `zstd -d` makes
// a raw image of it, and a reader of the records skips holes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpunbd::storage {

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

}  // namespace gpunbd::storage
