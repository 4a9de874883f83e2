// The folder of a server's admin socket, unless that is configured. The server and the commands
// that ask it choose it here.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

struct RuntimeFolder {
    std::string path;
    std::string why_no_other;  // not empty: the usual one cannot be used, for this reason
};

// For a server of this user: a folder that only this user, or root, can write to, made if it is not
// there. Throws std::runtime_error if there is none, with the reasons.
RuntimeFolder own_runtime_folder();

// Where servers that this user may ask have their sockets, the likeliest first.
std::vector<std::string> likely_runtime_folders();

}  // namespace gpunbd::server
