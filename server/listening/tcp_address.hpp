// TCP addresses to listen on: taken, or refused in one line that says what to do.
#pragma once

#include <string>

#include "config/options.hpp"
#include "server/listening/address_error.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

// 127.0.0.1:10809, [::1]:10809
std::string name_of(const config::TcpListener& options);
// A socket that has the address and does not listen yet. Throws AddressError.
OwnedFd bind_tcp(const config::TcpListener& options);
// For the errno of bind() or listen().
AddressError tcp_error(const config::TcpListener& options, int error);

}  // namespace gpunbd::server
