// The properties of exports in the protocol. They do not depend on storage, so that handshakes can
// be tested with plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"

namespace gpunbd::protocol {

struct ExportInfo {
    std::string name = {};         // canonical; at most max_string bytes of UTF-8, no NUL
    std::string description = {};  // likewise
    std::string instance = {};     // of its contents: hexadecimal digits; empty: unknown
    // The names of the exports that share pages with it, for MetaContext::dirty.
    std::vector<std::string> related = {};
    std::uint64_t size = 0;  // bytes
    bool read_only = false;
    bool cached = false;                          // it has MetaContext::cached
    bool tls_required = false;                    // with optional TLS: this export requires it
    std::uint32_t minimum_block = 1;              // bytes, a power of two up to 64 KiB
    std::uint32_t preferred_block = 4096;         // bytes, a power of two >= minimum_block and 512
    std::uint32_t maximum_payload = max_payload;  // bytes, a multiple of minimum_block

    // The transmission flags of this export ("Transmission flags"). SEND_DF needs replies in
    // chunks, BLOCK_STATUS_PAYLOAD extended headers.
    std::uint16_t transmission_flags(Headers headers) const;

    // True if clients that do not know block sizes comply with them anyway. Otherwise the
    // server sends them without a request ("Block size constraints").
    bool default_block_sizes() const;
};

// The state of a LIST that is being answered. It owns names only and keeps no export alive.
struct Listing {
    // The names of all exports when it started, in order. Concurrent listings share them.
    std::shared_ptr<const std::vector<std::string>> names;
    std::size_t next = 0;  // index into names
};

// The exports as the negotiation uses them. The empty name is the default export.
class ExportDirectory {
 public:
    virtual ~ExportDirectory() = default;
    virtual Listing list() const = 0;
    // Returns the current state of the next export of the listing, or nothing after the last one.
    // Skips exports that were removed after the listing began; exports added later are not listed.
    virtual std::optional<ExportInfo> next(Listing& listing) const = 0;
    virtual std::optional<ExportInfo> find(std::string_view name) const = 0;
    // Called before a client opens an export that it has found. False: the export has to be made
    // first, and the directory is called again for the same name once it has been made, or could
    // not be made.
    virtual bool ready(std::string_view) const { return true; }
    // Called before a client enters transmission with an export that it has found. Returns an empty
    // text, or the reason for a refusal as one line for the client.
    virtual std::string enter(std::string_view) const { return {}; }
    // Why an export cannot be found, for the log only: "asked for export 'x', ...".
    virtual std::string why_not(std::string_view) const { return "which is not offered"; }
};

}  // namespace gpunbd::protocol
