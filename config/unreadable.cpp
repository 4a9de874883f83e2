#include "config/unreadable.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "config/quote.hpp"

namespace gpunbd::config {
namespace {

namespace fs = std::filesystem;

// Returns the number if the user has no name.
std::string user_name(uid_t id) {
    const passwd* entry = getpwuid(id);
    return entry == nullptr ? std::to_string(id) : entry->pw_name;
}

std::string permission_denied(const std::string& path) {
    const std::string me = user_name(geteuid());
    std::error_code ignored;
    fs::path folder;
    for (const fs::path& part : fs::absolute(path, ignored).parent_path()) {
        folder /= part;
        if (faccessat(AT_FDCWD, folder.c_str(), X_OK, AT_EACCESS) == 0) continue;
        return fmt::format(
            "permission denied: user {} may not enter the folder {}; permit it with "
            "chmod or chown, or move the file",
            me, in_quotes(folder.string()));
    }
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return "permission denied";
    if (status.st_uid == geteuid()) {
        return fmt::format("permission denied: its mode is {:04o}; permit it with chmod u+r",
                           status.st_mode & 07777U);
    }
    const std::string owner = user_name(status.st_uid);
    return fmt::format(
        "permission denied: user {} may not read it, it belongs to {} and has mode "
        "{:04o}; permit it with chmod or chown, or run gpunbd as {}",
        me, owner, status.st_mode & 07777U, owner);
}

}  // namespace

std::string why_unreadable(const std::string& path, int error, std::string_view remedy) {
    std::error_code ignored;
    const fs::path folder = fs::path(path).parent_path();
    switch (error) {
        case ENOENT:
            if (fs::is_symlink(path, ignored)) {
                return fmt::format(
                    "it is a link to {}, which does not exist; create that file, or correct the "
                    "link",
                    in_quotes(fs::read_symlink(path, ignored).string()));
            }
            if (!folder.empty() && !fs::exists(folder, ignored)) {
                return fmt::format("there is no folder {}; {}, or correct the path",
                                   in_quotes(folder.string()), remedy.empty() ? "make it" : remedy);
            }
            return fmt::format("there is no such file; {}, or correct the path",
                               remedy.empty() ? "make it, see gpunbd.yaml(5)" : remedy);
        case ENOTDIR:
            return "a part of the path is a file, not a folder; correct the path";
        case EISDIR:
            return fmt::format(
                "it is a folder; name a file in it, for example {}",
                in_quotes((fs::path(path) / "gpunbd.yaml").lexically_normal().string()));
        case EACCES:
            return permission_denied(path);
        case ENAMETOOLONG:
            return "the path is too long; use a shorter one";
        default:
            return std::generic_category().message(error);
    }
}

}  // namespace gpunbd::config
