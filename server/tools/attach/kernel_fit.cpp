#include "server/tools/attach/kernel_fit.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "protocol/constants.hpp"

namespace gpunbd::attach {
namespace {

constexpr std::uint32_t smallest_block = 512;
constexpr std::uint32_t largest_block = 4096;  // a page: the kernel takes no larger one

}  // namespace

std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted) {
    if ((facts.flags & protocol::transmission_flag::has_flags) == 0 || facts.size == 0) {
        return Failure{"the server does not say how large the export is"};
    }
    facts.block_size = std::max(facts.block_size, smallest_block);
    if (facts.block_size > largest_block || !std::has_single_bit(facts.block_size)) {
        return Failure{"the kernel has no blocks of " + std::to_string(facts.block_size) +
                       " bytes"};
    }
    if (!wanted) return std::nullopt;
    if (*wanted < facts.block_size) {
        return Failure{"the server takes no blocks below " + std::to_string(facts.block_size) +
                       " bytes; give --block-size that, or leave it out"};
    }
    facts.block_size = *wanted;
    return std::nullopt;
}

}  // namespace gpunbd::attach
