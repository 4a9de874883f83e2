// TLS that the kernel does for a socket, so that the kernel's own NBD client can have it: whether
// it can, and whether it has taken over.
#pragma once

#include <openssl/types.h>

#include <optional>

#include "server/tools/client/failure.hpp"

namespace gpunbd::client {

// Nothing: the kernel has TLS, or has loaded it now.
std::optional<Failure> kernel_lacks_tls();

// After a handshake. Nothing: both directions are the kernel's, and no byte is anywhere else.
std::optional<Failure> not_all_in_kernel(SSL& ssl);

}  // namespace gpunbd::client
