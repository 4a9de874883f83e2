// Vsock addresses to listen on, which virtual machines and their host reach each other by: taken,
// or refused in one line that says what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/options.hpp"
#include "server/listening/address_error.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

// vsock:any:10809, vsock:2:10809
std::string name_of(const config::VsockListener& options);
// A socket that has the address and does not listen yet. Throws AddressError.
OwnedFd bind_vsock(const config::VsockListener& options);
// For the errno of socket(), bind() or listen().
AddressError vsock_error(const config::VsockListener& options, int error);

// The context id by which others reach this machine; none where no transport is loaded, and nobody
// can.
std::optional<std::uint32_t> local_cid();
// What to do where that is so.
std::string no_vsock_transport();

}  // namespace gpunbd::server
