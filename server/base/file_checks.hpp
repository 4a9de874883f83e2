#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

// Error messages, with remedies, for failures to create a file or a socket.

std::string folder_of(const std::string& path);
// `error` is the errno of creating `path`.
std::string create_error(const std::string& path, int error);
// Returns the error that creating `path` would probably give now. Empty: none. Creates nothing.
std::string cannot_create(const std::string& path);

// "user", "user:group" or ":group" as the numbers that chown() takes.
struct FileOwner {
    uid_t uid = static_cast<uid_t>(-1);  // -1: unchanged
    gid_t gid = static_cast<gid_t>(-1);
};

// By name or by number. Throws std::runtime_error if the user or the group does not exist.
FileOwner find_owner(const std::string& text);
// Returns true if this process may change the owner of its own files to `owner`.
bool may_give_to(const FileOwner& owner);

}  // namespace gpunbd::server
