#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line/command.hpp"
#include "server/tools/client/address.hpp"
#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

// The server for `status` and `top`: at a socket or a URL, or the only one that runs.
struct ServerSelection {
    struct Url {
        std::string host;
        std::string port;
    };
    std::optional<std::string> socket = {};
    std::optional<Url> url = {};
    std::optional<std::string> token = {};  // with `url`: a file
};

// Returns `more` and the flags that select a server.
std::vector<config::Flag> server_flags(ServerSelection& server, std::vector<config::Flag> more);

// Finds the server for a request: the named one, or the only one that runs.
struct AdminServer {
    client::Address address;
    std::string host;   // the host of the URL, for the request
    std::string token;  // empty: none
};

// If no server is named, finds the only one that answers on a socket admin-PID.sock in one of the
// folders.
Expected<AdminServer, Failure> find_server(const ServerSelection& selection,
                                           const std::vector<std::string>& folders);

// The servers that answer on such sockets.
struct FoundServers {
    std::vector<AdminServer> servers;
    std::vector<std::string> pids;    // of `servers`
    std::vector<std::string> silent;  // the reasons why others do not answer
    std::vector<std::string> closed;  // folders and sockets that this user may not open
};
FoundServers find_servers(const std::vector<std::string>& folders);
Expected<AdminServer, Failure> server_at(const std::string& path);
// The failure if no server answers in these folders.
Failure none_found(const FoundServers& found, const std::vector<std::string>& folders);
// "2 servers run: PATH (pid N), ...; choose one"
Failure too_many(const FoundServers& found);

// Returns a connected, non-blocking socket. Refuses Unix sockets of servers of other users.
Expected<OwnedFd, Failure> call(const AdminServer& server, client::Deadline until);

}  // namespace gpunbd::status
