// Opens connections to a server. The endpoint is prepared once, and then used for each new
// connection.
#pragma once

#include <memory>
#include <string>

#include "server/tools/client/failure.hpp"
#include "server/tools/client/nbd_target.hpp"
#include "server/tools/client/stream.hpp"
#include "server/tools/client/tls.hpp"

namespace gpunbd::client {

struct Endpoint {
    Address address;
    std::shared_ptr<const Tls> tls;  // null: no TLS
    std::string name;                // of the export
};

// Resolves the host and reads the TLS files.
Expected<Endpoint, Failure> find_endpoint(const NbdTarget& target, TlsBy by);

// Connects, completes the greeting and, if configured, the TLS handshake. The server then waits for
// options.
Expected<Stream, Failure> call(const Endpoint& endpoint, Deadline until);

}  // namespace gpunbd::client
