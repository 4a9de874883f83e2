// A client's side of the NBD handshake (fixed newstyle, GO), up to where the kernel takes over. It
// reads no byte beyond the handshake: that one would be the kernel's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "byte_stream.hpp"
#include "failure.hpp"

namespace gpunbd::attach {

struct ExportFacts {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t block_size = 512;  // what the kernel is to take as the device's block
    std::string instance;  // which contents these are; empty where the server does not say
};

Or<ExportFacts> shake_hands(const ByteStream& stream, std::string_view name);

// What stands as "(instance ...)" at the end of an export's description.
std::string instance_in(std::string_view description);

}  // namespace gpunbd::attach
