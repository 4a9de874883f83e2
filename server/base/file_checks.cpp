#include "server/base/file_checks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

namespace gpunbd::server {

namespace {

std::optional<std::uint32_t> number(const std::string& text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string create_error(const std::string& path, int error) {
    const std::string folder = folder_of(path);
    switch (error) {
        case ENOENT:
            return fmt::format("the folder {} does not exist; create it, or choose another path",
                               folder);
        case ENOTDIR:
            return fmt::format("{} is not a folder; choose another path", folder);
        case EACCES:
        case EPERM:
            return fmt::format(
                "uid {} may not create files in {}; choose another path, or grant write permission",
                ::geteuid(), folder);
        case EROFS:
            return fmt::format("{} is on a read-only file system; choose another path", folder);
        case ENOSPC:
        case EDQUOT:
            return fmt::format("no space is left in {}; free some space, or choose another path",
                               folder);
        case ENOLCK:
            return fmt::format("{} is on a file system without locks (flock); choose another path",
                               folder);
        default:
            return fmt::format("cannot be created: {}", std::strerror(error));
    }
}

std::string cannot_create(const std::string& path) {
    // The trailing slash gives ENOTDIR if a file has the name of the folder.
    const std::string folder = folder_of(path) + "/";
    if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    return create_error(path, errno);
}

FileOwner find_owner(const std::string& text) {
    FileOwner owner;
    const std::size_t colon = text.find(':');
    const std::string user = text.substr(0, colon);
    if (!user.empty()) {
        if (const passwd* entry = ::getpwnam(user.c_str())) {
            owner.uid = entry->pw_uid;
        } else if (const auto uid = number(user)) {
            owner.uid = *uid;
        } else {
            throw std::runtime_error(fmt::format(
                "there is no user {} on this machine; name one of `getent passwd`", user));
        }
    }
    if (colon == std::string::npos) return owner;
    const std::string name = text.substr(colon + 1);
    if (const group* entry = ::getgrnam(name.c_str())) {
        owner.gid = entry->gr_gid;
    } else if (const auto gid = number(name)) {
        owner.gid = *gid;
    } else {
        throw std::runtime_error(
            fmt::format("there is no group {} on this machine; name one of `getent group`", name));
    }
    return owner;
}

bool may_give_to(const FileOwner& owner) {
    if (::geteuid() == 0) return true;
    if (owner.uid != static_cast<uid_t>(-1) && owner.uid != ::geteuid()) return false;
    if (owner.gid == static_cast<gid_t>(-1) || owner.gid == ::getegid()) return true;
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<std::size_t>(std::max(0, count)));
    return std::find(groups.begin(), groups.end(), owner.gid) != groups.end();
}

}  // namespace gpunbd::server
