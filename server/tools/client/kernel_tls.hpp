// Kernel TLS for a socket, so that the kernel's NBD client can use it: checks the support of the
// kernel, and whether the kernel has taken over.
#pragma once

#include <openssl/types.h>

#include <optional>

#include "server/tools/client/failure.hpp"

namespace gpunbd::client {

// Loads the module if necessary. nullopt: the kernel supports TLS.
std::optional<Failure> kernel_lacks_tls();

// Call it after a handshake. nullopt: the kernel handles both directions, and OpenSSL holds no
// data.
std::optional<Failure> not_all_in_kernel(SSL& ssl);

}  // namespace gpunbd::client
