// Vsock addresses (between virtual machines and their host) to listen on, with one-line errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/options.hpp"
#include "server/net/address_error.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// vsock:any:10809, vsock:2:10809
std::string name_of(const config::VsockListener& options);
// Returns a bound socket that does not listen yet. Throws AddressError.
OwnedFd bind_vsock(const config::VsockListener& options);
// For the errno of socket(), bind() or listen().
AddressError vsock_error(const config::VsockListener& options, int error);

// The context id of this machine; none if no vsock transport is loaded.
std::optional<std::uint32_t> local_cid();
// The remedy for that case.
std::string no_vsock_transport();

}  // namespace gpunbd::server
