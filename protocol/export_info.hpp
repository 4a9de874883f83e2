// What the protocol needs to know of an export, and who answers questions about exports.
// Kept apart from storage so that a handshake is tested with plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/headers.hpp"

namespace gpunbd::protocol {

struct ExportInfo {
    std::string name = {};         // canonical; at most max_string bytes of UTF-8, no NUL
    std::string description = {};  // likewise
    std::string instance = {};     // of its contents: hexadecimal digits; empty: nobody knows
    std::uint64_t size = 0;        // bytes
    bool read_only = false;
    bool tls_required = false;             // where TLS is optional: this one is had in TLS only
    std::uint32_t minimum_block = 1;       // bytes, a power of two up to 64 KiB
    std::uint32_t preferred_block = 4096;  // bytes, a power of two >= minimum_block and 512
    std::uint32_t maximum_payload = max_payload;  // bytes, a multiple of minimum_block

    // The transmission flags of this export ("Transmission flags"); SEND_DF only where replies are
    // chunks, BLOCK_STATUS_PAYLOAD only with extended headers.
    std::uint16_t transmission_flags(Headers headers) const;

    // Whether a client that never heard of block sizes keeps to them anyway; where not, they are
    // told unasked ("Block size constraints").
    bool default_block_sizes() const;
};

// The exports as the negotiation sees them. The empty name asks for the default export.
class ExportDirectory {
 public:
    virtual ~ExportDirectory() = default;
    virtual std::vector<ExportInfo> list() const = 0;
    virtual std::optional<ExportInfo> find(std::string_view name) const = 0;
    // Whoever has found one goes on to transmission with it. Empty: it may; else why not, in a line
    // for the client.
    virtual std::string enter(std::string_view) const { return {}; }
    // Why one cannot be found, for the log alone: "asked for export 'x', ...".
    virtual std::string why_not(std::string_view) const { return "which is not offered"; }
};

}  // namespace gpunbd::protocol
