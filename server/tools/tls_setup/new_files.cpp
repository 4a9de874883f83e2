#include "server/tools/tls_setup/new_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "server/base/file_checks.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

constexpr mode_t own = 0700;

[[noreturn]] void fail(const std::string& path, int error) {
    if (error == EEXIST) {
        throw std::runtime_error(fmt::format(
            "{} exists already, and nothing was changed; move it away to create a new one", path));
    }
    throw std::runtime_error(fmt::format("{}: {}", path, create_error(path, error)));
}

// Returns an errno; 0: moved.
int move_without_replacing(const std::string& from, const std::string& to) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
    // Some file systems do not support RENAME_NOREPLACE; then check for an existing file first.
    if (errno != EINVAL && errno != ENOSYS) return errno;
    struct stat there {};
    if (::lstat(to.c_str(), &there) == 0) return EEXIST;
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

NewFiles::NewFiles(std::string folder) : folder_(std::move(folder)) {
    struct stat there {};
    existed_ = ::stat(folder_.c_str(), &there) == 0;
    if (existed_ && !S_ISDIR(there.st_mode)) {
        throw std::runtime_error(
            fmt::format("{} exists and is not a folder; choose another one", folder_));
    }
    if (existed_ && (there.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        throw std::runtime_error(
            fmt::format("{} has mode {:04o}, so that other users may place keys there; restrict it "
                        "to its owner: chmod 0700 {}",
                        folder_, there.st_mode & 07777, folder_));
    }
    // Within an existing folder, because its parent may belong to another user.
    staging_ = (existed_ ? folder_ + "/" : folder_) + ".new-XXXXXX";
    if (::mkdtemp(staging_.data()) == nullptr) {
        const int error = errno;
        staging_.clear();
        fail(existed_ ? folder_ + "/ca-cert.pem" : folder_, error);
    }
}

NewFiles::~NewFiles() {
    std::error_code ignored;
    if (!staging_.empty()) std::filesystem::remove_all(staging_, ignored);
}

void NewFiles::add(const std::string& path, std::string_view content, mode_t mode) {
    struct stat there {};
    if (::lstat(placed(path).c_str(), &there) == 0) fail(placed(path), EEXIST);
    write(path, content, mode);
    files_.push_back({.path = path});
}

void NewFiles::replace(const std::string& path, std::string_view content, mode_t mode) {
    write(path, content, mode);
    files_.push_back({.path = path, .replaces = true});
}

void NewFiles::write(const std::string& path, std::string_view content, mode_t mode) {
    make_folders(staging_, path, nullptr);
    const std::string name = staged(path);
    const OwnedFd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd.get() < 0 || ::fchmod(fd.get(), mode) != 0) fail(placed(path), errno);
    while (!content.empty()) {
        const ssize_t done = ::write(fd.get(), content.data(), content.size());
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(placed(path), errno);
        content.remove_prefix(static_cast<std::size_t>(done));
    }
    if (::fsync(fd.get()) != 0) fail(placed(path), errno);
}

void NewFiles::make_folders(const std::string& root, const std::string& path,
                            std::vector<std::string>* made) {
    for (std::size_t end = path.find('/'); end != std::string::npos;
         end = path.find('/', end + 1)) {
        const std::string folder = root + "/" + path.substr(0, end);
        if (::mkdir(folder.c_str(), own) == 0) {
            if (made != nullptr) made->push_back(folder);
        } else if (errno != EEXIST) {
            fail(placed(path.substr(0, end)), errno);
        }
    }
}

void NewFiles::move_there(const File& file) {
    const std::string to = placed(file.path);
    const int error = file.replaces
                          ? (::rename(staged(file.path).c_str(), to.c_str()) == 0 ? 0 : errno)
                          : move_without_replacing(staged(file.path), to);
    if (error != 0) fail(to, error);
}

void NewFiles::publish() {
    if (!existed_) {
        if (const int error = move_without_replacing(staging_, folder_); error != 0) {
            fail(folder_, error);
        }
        staging_.clear();
        return;
    }
    std::vector<std::string> folders;
    std::vector<std::string> moved;
    // Replacements come last, because they cannot be undone.
    std::stable_partition(files_.begin(), files_.end(),
                          [](const File& file) { return !file.replaces; });
    try {
        for (const File& file : files_) {
            make_folders(folder_, file.path, &folders);
            move_there(file);
            if (!file.replaces) moved.push_back(placed(file.path));
        }
    } catch (...) {
        for (const std::string& path : moved) ::unlink(path.c_str());
        for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
            ::rmdir(folder->c_str());
        }
        throw;
    }
}

}  // namespace gpunbd::server
