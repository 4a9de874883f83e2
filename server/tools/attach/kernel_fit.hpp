// Checks an export against the limits of the kernel's client.
#pragma once

#include <cstdint>
#include <optional>

#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {

// Sets `facts.block_size` to `wanted`, or to the minimum that both the server and the kernel
// support.
std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted);

}  // namespace gpunbd::attach
