#include "server/process/keeping_path.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace gpunbd::server {

namespace {

constexpr const char* system_folder = "/run/gpunbd";
constexpr const char* keeping_file = "/keeping.sock";

std::optional<std::string> variable(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text != '/') return std::nullopt;
    return text;
}

std::optional<std::string> users_folder() {
    auto folder = variable("XDG_RUNTIME_DIR");
    if (folder) *folder += "/gpunbd";
    return folder;
}

// By systemd.
std::optional<std::string> given_folder() {
    auto folder = variable("RUNTIME_DIRECTORY");
    if (folder) folder->erase(std::min(folder->find(':'), folder->size()));  // there may be several
    return folder;
}

void make_trusted(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        throw std::runtime_error(fmt::format("{}: {}", folder, std::strerror(errno)));
    }
    struct stat file {};
    const bool known = ::lstat(folder.c_str(), &file) == 0 && S_ISDIR(file.st_mode);
    if (!known || (file.st_uid != ::geteuid() && file.st_uid != 0) ||
        (file.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        throw std::runtime_error(
            fmt::format("{}: others can write to it, or it is no folder", folder));
    }
}

}  // namespace

std::optional<std::string> own_socket_folder() {
    std::optional<std::string> folder = given_folder();
    if (!folder) {
        folder = ::geteuid() == 0 ? std::optional<std::string>(system_folder) : users_folder();
    }
    if (!folder) return std::nullopt;
    make_trusted(*folder);
    return folder;
}

std::optional<std::string> own_keeping_path() {
    auto path = own_socket_folder();
    if (path) *path += keeping_file;
    return path;
}

std::vector<std::string> likely_keeping_paths() {
    std::vector<std::string> paths{std::string(system_folder) + keeping_file};
    if (const auto own = users_folder()) {
        paths.insert(::geteuid() == 0 ? paths.end() : paths.begin(), *own + keeping_file);
    }
    return paths;
}

std::vector<std::string> likely_admin_folders() {
    if (const auto given = given_folder()) return {*given};
    std::vector<std::string> folders{system_folder};
    if (const auto own = users_folder()) folders.push_back(*own);
    return folders;
}

}  // namespace gpunbd::server
