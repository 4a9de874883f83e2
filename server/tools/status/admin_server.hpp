// The server that is asked: the one that was named, or the only one that can be found.
#pragma once

#include <string>
#include <vector>

#include "server/tools/client/address.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/server_selection.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

struct AdminServer {
    client::Address address;
    std::string host;   // of its URL, for the request
    std::string token;  // empty: none
};

// Where none is named it is the one that answers on a socket admin-PID.sock in one of the folders.
Or<AdminServer> find_server(const ServerSelection& asked, const std::vector<std::string>& folders);

// Those that answer on such sockets.
struct FoundServers {
    std::vector<AdminServer> servers;
    std::vector<std::string> pids;    // of those
    std::vector<std::string> silent;  // why others do not answer
};
FoundServers find_servers(const std::vector<std::string>& folders);
Or<AdminServer> server_at(const std::string& path);
// "there are 2 servers: PATH (pid N), ...; choose one"
Failure too_many(const FoundServers& found);

// A connected socket, non-blocking; of no other user's server where it is a Unix socket.
Or<OwnedFd> call(const AdminServer& server, client::Deadline until);

}  // namespace gpunbd::status
