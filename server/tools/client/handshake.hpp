#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/constants.hpp"
#include "server/tools/client/address.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/stream.hpp"
#include "server/tools/client/tls.hpp"

namespace gpunbd::client {

// Opens connections to a server. The endpoint is prepared once, and then used for each new
// connection.
struct Endpoint {
    Address address;
    std::shared_ptr<const Tls> tls;  // null: no TLS
    std::string name;                // of the export
};

// Resolves the host and reads the TLS files.
Expected<Endpoint, Failure> find_endpoint(const config::NbdTarget& target, TlsBy by);

// Connects, completes the greeting and, if configured, the TLS handshake. The server then waits for
// options.
Expected<Stream, Failure> call(const Endpoint& endpoint, Deadline until);

std::optional<Failure> greet(Stream& stream);
std::optional<Failure> enter_tls(Stream& stream, std::shared_ptr<const Tls> tls);

// The client side of the fixed newstyle NBD handshake.
struct ExportFacts {
    std::uint64_t size = 0;
    std::uint16_t flags = 0;
    std::uint32_t block_size = 1;                       // the minimum of the server
    std::uint32_t max_request = protocol::max_payload;  // bytes of data
    std::string instance;  // the id of the contents; empty if the server reports none
};

// The properties of an export. GO opens the export, INFO does not.
Expected<ExportFacts, Failure> query_export(Stream& stream, protocol::OptionType go_or_info,
                                            std::string_view name);

// Ends the handshake with ABORT. Failures are ignored.
void leave(Stream& stream);

// The id at the end of an export's description, as gpunbd writes it: "TEXT (instance ID)", or
// "instance ID". The metadata context with the same id requires structured replies, which the
// kernel does not support. The reply to GO describes exactly the contents that GO opens.
std::string instance_in(std::string_view description);

}  // namespace gpunbd::client
