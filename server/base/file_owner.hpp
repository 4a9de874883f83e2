// "user", "user:group" or ":group" as the numbers that chown() takes.
#pragma once

#include <sys/types.h>

#include <string>

namespace gpunbd::server {

struct FileOwner {
    uid_t uid = static_cast<uid_t>(-1);  // -1: stays as it is
    gid_t gid = static_cast<gid_t>(-1);
};

// By name or by number. Throws std::runtime_error where there is no such user or group.
FileOwner find_owner(const std::string& text);
// May this process give a file of its own to that owner?
bool may_give_to(const FileOwner& owner);

}  // namespace gpunbd::server
