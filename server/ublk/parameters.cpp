#include "server/ublk/parameters.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server::ublk {

namespace {

constexpr std::uint32_t sector = 1U << sector_shift;
constexpr std::uint32_t page = 4096;  // the least page size of the kernel; its maximum for blocks
constexpr std::uint32_t max_discard = 1U << 30;  // bytes

// The parts of a mark, from the highest bit on: 16 bits that tell gpunbd, 16 of the name, 24 of the
// contents, 8 of the parameters.
constexpr std::uint64_t magic = 0x676e;
constexpr int magic_shift = 48;
constexpr int name_shift = 32;
constexpr int contents_shift = 8;

// FNV-1a. Later versions of gpunbd must compute the same.
std::uint32_t hash(std::string_view text) {
    std::uint32_t value = 2166136261U;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 16777619U;
    return value;
}

std::uint8_t shift_of(std::uint64_t size) {
    GPUNBD_ASSERT(std::has_single_bit(size), "block sizes are powers of two");
    return static_cast<std::uint8_t>(std::countr_zero(size));
}

}  // namespace

Parameters parameters_of(const Export& exported) {
    const auto block = std::clamp(exported.info.minimum_block, sector, page);
    const auto best = std::max(exported.info.preferred_block, page);
    Parameters out;
    if (exported.info.read_only) out.attributes |= Parameters::read_only;
    // Otherwise there is no volatile cache: an answered write is in device memory.
    if (!exported.info.read_only && exported.options.origin.is_writable()) {
        out.attributes |= Parameters::volatile_cache | Parameters::fua;
    }
    out.logical_block_shift = shift_of(block);
    out.physical_block_shift = shift_of(page);
    out.minimum_shift = shift_of(page);
    out.best_shift = shift_of(best);
    out.max_sectors = max_request >> sector_shift;
    out.sectors = exported.info.size >> sector_shift;
    if (!exported.info.read_only) {
        out.discard_granularity = page;
        out.max_discard_sectors = out.max_zero_sectors = max_discard >> sector_shift;
    } else {
        out.types = Parameters::basic;
    }
    return out;
}

Mark::Mark(const Export& exported) : value(magic << magic_shift) {
    const Parameters parameters = parameters_of(exported);
    value |= std::uint64_t{hash(exported.info.name) & 0xffffU} << name_shift;
    value |= std::uint64_t{hash(exported.info.instance) & 0xffffffU} << contents_shift;
    value |= (parameters.attributes & Parameters::read_only) |
             std::uint32_t{parameters.logical_block_shift} << 1;
}

bool Mark::is_gpunbd() const { return value >> magic_shift == magic; }

bool Mark::same_name(Mark other) const { return value >> name_shift == other.value >> name_shift; }

bool Mark::same_contents(Mark other) const {
    return value >> contents_shift == other.value >> contents_shift;
}

}  // namespace gpunbd::server::ublk
