#include "storage/devices/ranges.hpp"

#include <iterator>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

Ranges::Ranges(std::uint64_t bytes) : free_bytes_(bytes) {
    if (bytes != 0) parts_.emplace(0, Part{.bytes = bytes});
}

std::optional<std::uint64_t> Ranges::take(std::uint64_t bytes) {
    GPUNBD_ASSERT(bytes != 0, "an empty range has no place of its own");
    auto best = parts_.end();
    for (auto each = parts_.begin(); each != parts_.end(); ++each) {
        const Part& part = each->second;
        if (!part.free || part.bytes < bytes) continue;
        if (best == parts_.end() || part.bytes < best->second.bytes) best = each;
    }
    if (best == parts_.end()) return std::nullopt;
    const std::uint64_t rest = best->second.bytes - bytes;
    if (rest != 0) parts_.emplace_hint(std::next(best), best->first + bytes, Part{.bytes = rest});
    best->second = {.bytes = bytes, .free = false};
    free_bytes_ -= bytes;
    return best->first;
}

void Ranges::give_back(std::uint64_t offset) noexcept {
    const auto part = parts_.find(offset);
    GPUNBD_ASSERT(part != parts_.end() && !part->second.free,
                  "a range that take() has returned is freed once");
    part->second.free = true;
    free_bytes_ += part->second.bytes;
    join_next(part);
    if (part != parts_.begin() && std::prev(part)->second.free) join_next(std::prev(part));
}

void Ranges::join_next(Parts::iterator part) noexcept {
    const auto next = std::next(part);
    if (next == parts_.end() || !next->second.free) return;
    part->second.bytes += next->second.bytes;
    parts_.erase(next);
}

}  // namespace gpunbd::storage
