// A client's side of the NBD handshake (fixed newstyle, GO), up to where the kernel takes over. It
// reads no byte beyond the handshake: that one would be the kernel's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/constants.hpp"
#include "server/attach/byte_stream.hpp"
#include "server/attach/failure.hpp"

namespace gpunbd::attach {

struct ExportFacts {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t block_size = 512;  // what the kernel is to take as the device's block
    std::uint32_t max_request = protocol::max_payload;  // bytes of data
    std::string instance;  // which contents these are; empty where the server does not say
};

// `block_size`: what the device is to have; none: the least that the server takes.
Or<ExportFacts> shake_hands(const ByteStream& stream, std::string_view name,
                            std::optional<std::uint32_t> block_size);

// The id at the end of an export's description, as gpunbd writes it: "TEXT (instance ID)", or
// "instance ID". The metadata context that tells it as well is for structured replies only, which
// the kernel cannot read; and what comes with GO is about the very contents that GO opens.
std::string instance_in(std::string_view description);

}  // namespace gpunbd::attach
