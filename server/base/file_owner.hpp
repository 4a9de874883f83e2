// "user", "user:group" or ":group" as the numbers that chown() takes.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

struct FileOwner {
    uid_t uid = static_cast<uid_t>(-1);  // -1: unchanged
    gid_t gid = static_cast<gid_t>(-1);
};

// By name or by number. Throws std::runtime_error if the user or the group does not exist.
FileOwner find_owner(const std::string& text);
// Returns true if this process may change the owner of its own files to `owner`.
bool may_give_to(const FileOwner& owner);

}  // namespace gpunbd::server
