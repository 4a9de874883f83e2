// TCP addresses to listen on, with one-line errors.
#pragma once

#include <string>

#include "config/options.hpp"
#include "server/net/address_error.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// 127.0.0.1:10809, [::1]:10809
std::string name_of(const config::TcpListener& options);
// Returns a bound socket that does not listen yet. Throws AddressError.
OwnedFd bind_tcp(const config::TcpListener& options);
// For the errno of bind() or listen().
AddressError tcp_error(const config::TcpListener& options, int error);

}  // namespace gpunbd::server
