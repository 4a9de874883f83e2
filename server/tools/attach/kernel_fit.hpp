// What the kernel's client can take of an export, which is less than a server may offer.
#pragma once

#include <cstdint>
#include <optional>

#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {

// `facts.block_size` becomes the device's: `wanted`, or the least that server and kernel take.
std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted);

}  // namespace gpunbd::attach
