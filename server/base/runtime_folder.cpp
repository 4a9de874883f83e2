#include "server/base/runtime_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace gpunbd::server {

namespace {

// The package creates it for the service and gives it to the service's user, so root must not put
// sockets into it.
constexpr const char* system_folder = "/run/gpunbd";
constexpr const char* roots_folder = "/run/gpunbd-root";

std::optional<std::string> variable(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text != '/') return std::nullopt;
    return text;
}

// systemd and the container image set it; then no other folder is used.
std::optional<std::string> given_folder() {
    auto folder = variable("RUNTIME_DIRECTORY");
    if (folder)
        folder->erase(std::min(folder->find(':'), folder->size()));  // a list, separated by colons
    return folder;
}

std::optional<std::string> session_folder() {
    auto folder = variable("XDG_RUNTIME_DIR");
    if (folder) *folder += "/gpunbd";
    return folder;
}

std::string temporary_folder() { return fmt::format("/tmp/gpunbd-{}", ::geteuid()); }

// Empty: only this user or root can write to it.
std::string why_not_trusted(const std::string& folder) {
    struct stat file {};
    if (::lstat(folder.c_str(), &file) != 0) {
        return fmt::format("{}: {}", folder, std::strerror(errno));
    }
    if (!S_ISDIR(file.st_mode)) return folder + ": it is not a folder";
    if (file.st_uid != ::geteuid() && file.st_uid != 0) {
        return fmt::format("{}: it belongs to another user ({})", folder, file.st_uid);
    }
    if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) return folder + ": others can write to it";
    return {};
}

std::string why_not_made(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        return fmt::format("{}: {}", folder, std::strerror(errno));
    }
    return why_not_trusted(folder);
}

std::vector<std::string> own_folders() {
    if (const auto given = given_folder()) return {*given};
    std::vector<std::string> folders;
    if (::geteuid() == 0) {
        folders = {system_folder, roots_folder};
    } else if (const auto session = session_folder()) {
        folders = {*session};
    }
    folders.push_back(temporary_folder());
    return folders;
}

}  // namespace

RuntimeFolder own_runtime_folder() {
    std::string reasons;
    for (std::string& folder : own_folders()) {
        const std::string why = why_not_made(folder);
        if (why.empty()) return {std::move(folder), std::move(reasons)};
        reasons += (reasons.empty() ? "" : "; ") + why;
    }
    throw std::runtime_error(reasons);
}

std::vector<std::string> likely_runtime_folders() {
    if (const auto given = given_folder()) return {*given};
    std::vector<std::string> folders;
    if (::geteuid() == 0) {
        folders = {system_folder, roots_folder};
        if (const auto session = session_folder()) folders.push_back(*session);
    } else {
        if (const auto session = session_folder()) folders.push_back(*session);
        folders.emplace_back(system_folder);
        folders.emplace_back(roots_folder);  // which this user may not open
    }
    // Another user may have created it.
    if (why_not_trusted(temporary_folder()).empty()) folders.push_back(temporary_folder());
    return folders;
}

}  // namespace gpunbd::server
