#include "storage/origins/origin.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gpunbd::storage {

Origin::Error Origin::write_zeroes(std::uint64_t offset, std::uint64_t length) {
    // Aligned as reads and writes past the page cache have to be. Not constant, so that it takes no
    // space in the program.
    alignas(4096) static std::array<std::byte, std::size_t{1} << 20> zeroes{};
    while (length != 0) {
        const std::size_t part = std::min<std::uint64_t>(length, zeroes.size());
        if (auto why = write(offset, std::span(std::as_const(zeroes)).first(part))) return why;
        offset += part;
        length -= part;
    }
    return {};
}

}  // namespace gpunbd::storage
