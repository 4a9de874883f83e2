// The folder of a server's admin socket, unless one is configured. The server and the commands that
// query it use the same choice.
#pragma once

#include <string>
#include <vector>

namespace gpunbd::server {

struct RuntimeFolder {
    std::string path;
    std::string why_no_other;  // not empty: the reason why the usual folder is not used
};

// For a server of this user: a folder that only this user or root can write to. It is created if
// necessary. Throws std::runtime_error with the reasons if there is none.
RuntimeFolder own_runtime_folder();

// The folders with sockets of servers that this user may query, the most likely first.
std::vector<std::string> likely_runtime_folders();

}  // namespace gpunbd::server
