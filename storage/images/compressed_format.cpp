#include "storage/images/compressed_format.hpp"

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

}  // namespace gpunbd::storage
