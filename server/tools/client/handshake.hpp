// A client's side of the NBD handshake (fixed newstyle): what it asks for, and what servers may
// answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/constants.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/stream.hpp"

namespace gpunbd::client {

std::optional<Failure> greet(Stream& stream);
std::optional<Failure> enter_tls(Stream& stream, std::shared_ptr<const Tls> tls);

struct ExportFacts {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t block_size = 1;                       // the least that the server takes
    std::uint32_t max_request = protocol::max_payload;  // bytes of data
    std::string instance;  // which contents these are; empty where the server does not say
};

// What the server tells of an export. By GO the export is open behind it, by INFO it is not.
Or<ExportFacts> query_export(Stream& stream, protocol::OptionType go_or_info,
                             std::string_view name);

// Ends the handshake. What is known by now stays true, whatever becomes of the goodbye.
void leave(Stream& stream);

// The id at the end of an export's description, as gpunbd writes it: "TEXT (instance ID)", or
// "instance ID". The metadata context that tells it as well is for structured replies only, which
// the kernel cannot read; and what comes with GO is about the very contents that GO opens.
std::string instance_in(std::string_view description);

}  // namespace gpunbd::client
