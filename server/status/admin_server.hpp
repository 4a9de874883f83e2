// The server that is asked: the one that was named, or the only one that can be found.
#pragma once

#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "server/client/address.hpp"
#include "server/client/deadline.hpp"
#include "server/client/failure.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::status {

struct AdminServer {
    client::Address address;
    std::string host;   // of its URL, for the request
    std::string token;  // empty: none
};

// Where none is named it is the one that answers on a socket admin-PID.sock in one of the folders.
Or<AdminServer> find_server(const config::AskedServer& asked,
                            const std::vector<std::string>& folders);

// A connected socket, non-blocking; of no other user's server where it is a Unix socket.
Or<server::OwnedFd> call(const AdminServer& server, client::Deadline until);

}  // namespace gpunbd::status
