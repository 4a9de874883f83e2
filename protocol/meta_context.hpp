// The metadata contexts that this server knows: one ("Metadata querying").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpunbd::protocol {

inline constexpr std::string_view base_wildcard = "base:";
inline constexpr std::string_view base_allocation_name = "base:allocation";
// The only id there is, hence unique; LIST replies must carry 0 in any case.
inline constexpr std::uint32_t base_allocation_id = 0;
inline constexpr std::size_t known_contexts = 1;

}  // namespace gpunbd::protocol
