#include "server/tools/attach/kernel_fit.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "protocol/constants.hpp"

namespace gpunbd::attach {
namespace {

constexpr std::uint32_t smallest_block = 512;
constexpr std::uint32_t largest_block = 4096;  // a page: the limit of the kernel

}  // namespace

std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted) {
    if ((facts.flags & protocol::transmission_flag::has_flags) == 0 || facts.size == 0) {
        return Failure{"the server does not report the size of the export"};
    }
    facts.block_size = std::max(facts.block_size, smallest_block);
    if (facts.block_size > largest_block || !std::has_single_bit(facts.block_size)) {
        return Failure{"the kernel does not support blocks of " + std::to_string(facts.block_size) +
                       " bytes"};
    }
    if (!wanted) return std::nullopt;
    if (*wanted < facts.block_size) {
        return Failure{"the server does not accept blocks below " +
                       std::to_string(facts.block_size) +
                       " bytes; pass that to --block-size, or omit the flag"};
    }
    facts.block_size = *wanted;
    return std::nullopt;
}

}  // namespace gpunbd::attach
