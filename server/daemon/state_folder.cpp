#include "server/daemon/state_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "config/exports_by_name.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/base/file_checks.hpp"
#include "server/handover/kept_exports.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

constexpr std::string_view suffix = ".yaml";
constexpr std::size_t max_file_name = 255;  // NAME_MAX
constexpr std::string_view head =
    "# Written by gpunbd export; gpunbd export remove deletes this file.\n";

// The file of the export before it was renamed, which may still have to be moved.
constexpr std::string_view moved_from_comment = "# moved_from: ";

bool is_moved_from(const std::string& file, std::string_view text) {
    return text.find(fmt::format("\n{}{}\n", moved_from_comment, file)) != std::string_view::npos;
}

config::Problem problem(const std::string& file, const std::string& what) {
    return {.file = file, .line = 0, .column = 0, .key = "", .what = what};
}

std::string draft_of(const std::string& file) { return fmt::format(".{}.new", file); }

constexpr const char* too_long =
    "its name is too long for a file in the state folder; choose a shorter one, or leave --persist "
    "out";

bool is_too_long(const std::string& file) { return draft_of(file).size() > max_file_name; }

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

// Why the server does not use the file, of which only its user and root may decide the contents;
// empty: it does. `type`: S_IFREG or S_IFDIR. `path`: of the same file, for the remedy.
std::string distrust(int folder, const std::string& file, mode_t type, const std::string& path) {
    struct stat its {};
    if (::fstatat(folder, file.c_str(), &its, AT_SYMLINK_NOFOLLOW) != 0) {
        return fmt::format("cannot be read: {}", std::strerror(errno));
    }
    if ((its.st_mode & S_IFMT) != type) return "is not a regular file; remove it";
    if (its.st_uid != ::geteuid() && its.st_uid != 0) {
        return fmt::format(
            "belongs to another user (uid {}), so that this user may change exports; give it to "
            "the server's user: chown {} {}",
            its.st_uid, ::geteuid(), path);
    }
    if ((its.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
    return fmt::format(
        "has mode {:04o}, so that other users may change exports; restrict it to its owner: "
        "chmod go-w {}",
        its.st_mode & 07777, path);
}

// The names of the files of exports, sorted, so that exports have the same order at each start.
std::vector<std::string> files_in(DIR* folder) {
    std::vector<std::string> files;
    while (const dirent* const entry = ::readdir(folder)) {
        const std::string_view name(entry->d_name);
        if (!name.starts_with('.') && name.ends_with(suffix)) files.emplace_back(name);
    }
    std::sort(files.begin(), files.end());
    return files;
}

// Enough of a file for the comments before its first key.
std::string first_lines(const std::string& path) {
    std::string text(4096, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

}  // namespace

std::string StateFolder::file_name(std::string_view name) {
    std::string out;
    for (const char each : name) {
        const bool plain = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                           (each >= '0' && each <= '9') || each == '_' || each == '-' ||
                           (each == '.' && !out.empty());
        out +=
            plain ? std::string(1, each) : fmt::format("%{:02X}", static_cast<unsigned char>(each));
    }
    return out + std::string(suffix);
}

StateFolder::Exports StateFolder::read() const {
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
        return {.problems = {problem(path_, create_error(path_, errno))}};
    }
    const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path_.c_str()));
    if (!folder) {
        return {.problems = {problem(
                    path_, fmt::format("cannot be read: {}; state names a folder of the server's "
                                       "user",
                                       std::strerror(errno)))}};
    }
    const int fd = ::dirfd(folder.get());
    if (std::string why = distrust(fd, ".", S_IFDIR, path_); !why.empty()) {
        return {.problems = {problem(path_, why)}};
    }
    const std::vector<std::string> files = files_in(folder.get());
    if (files.size() > config::rules::max_exports) {
        return {
            .problems = {problem(path_, fmt::format("has {} exports, more than a server can have "
                                                    "({}); remove some of its files",
                                                    files.size(), config::rules::max_exports))}};
    }
    Exports out;
    for (const std::string& file : files) {
        const std::string path = fmt::format("{}/{}", path_, file);
        if (std::string why = distrust(fd, file, S_IFREG, path); !why.empty()) {
            out.problems.push_back(problem(path, why));
            continue;
        }
        config::LoadedExport loaded = config::load_export_file(path);
        for (config::Problem& each : loaded.problems) out.problems.push_back(std::move(each));
        if (!loaded.problems.empty()) continue;
        const std::string comments = first_lines(path);
        const std::string right = file_name(loaded.options.name);
        const bool is_misplaced = right != file;
        if (is_misplaced && is_moved_from(file, comments) &&
            std::ranges::find(files, right) == files.end()) {
            if (::renameat(fd, file.c_str(), fd, right.c_str()) != 0) {
                out.problems.push_back(problem(
                    path, fmt::format("cannot be renamed to {}: {}", right, std::strerror(errno))));
                continue;
            }
        } else if (is_misplaced) {
            config::Problem misplaced = problem(
                path, fmt::format("{} belongs in the file {}; rename the file, or correct the name",
                                  config::in_quotes(loaded.options.name), right));
            misplaced.key = "name";
            out.problems.push_back(std::move(misplaced));
            continue;
        }
        loaded.options.provenance = provenance_in(comments);
        loaded.options.provenance.persistent = true;
        out.exports.push_back(std::move(loaded.options));
    }
    return out;
}

std::string StateFolder::failed() const {
    return fmt::format("the state folder {}: {}", path_, std::strerror(errno));
}

Expected<void> StateFolder::replace(const std::string& file, const std::string& comments,
                                    const config::ExportOptions& options) const {
    const OwnedFd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return failed();
    const std::string draft = draft_of(file);
    const OwnedFd fd(::openat(folder.get(), draft.c_str(),
                              O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return failed();
    const std::string text =
        fmt::format("{}{}{}{}", head, comments, provenance_comments(options.provenance),
                    config::to_yaml(options));
    if (!write_all(fd.get(), text) || ::fsync(fd.get()) != 0 ||
        ::renameat(folder.get(), draft.c_str(), folder.get(), file.c_str()) != 0 ||
        ::fsync(folder.get()) != 0) {
        std::string why = failed();
        ::unlinkat(folder.get(), draft.c_str(), 0);
        return why;
    }
    return {};
}

Expected<void> StateFolder::write(const config::ExportOptions& options) const {
    const std::string file = file_name(options.name);
    return is_too_long(file) ? too_long : replace(file, "", options);
}

// The export has its new name from the first step on, since read() takes the second one as well.
Expected<void> StateFolder::rename(const config::ExportOptions& from,
                                   const config::ExportOptions& to) const {
    const std::string old_file = file_name(from.name);
    const std::string new_file = file_name(to.name);
    if (is_too_long(new_file)) return too_long;
    const Expected<void> renamed =
        replace(old_file, fmt::format("{}{}\n", moved_from_comment, old_file), to);
    std::string why;
    if (!renamed) {
        why = renamed.error();
    } else {
        const OwnedFd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        // gpunbd check may have been faster.
        const bool is_moved =
            folder &&
            (::renameat(folder.get(), old_file.c_str(), folder.get(), new_file.c_str()) == 0 ||
             (errno == ENOENT && ::faccessat(folder.get(), new_file.c_str(), F_OK, 0) == 0));
        if (is_moved && ::fsync(folder.get()) == 0) return {};
        why = failed();
        if (is_moved) ::renameat(folder.get(), new_file.c_str(), folder.get(), old_file.c_str());
    }
    if (!replace(old_file, "", from) && renamed) {
        why += fmt::format("; export {} has the name {} at the next start",
                           config::in_quotes(from.name), config::in_quotes(to.name));
    }
    return why;
}

Expected<void> StateFolder::remove(const std::string& name) const {
    const OwnedFd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder && (::unlinkat(folder.get(), file_name(name).c_str(), 0) == 0 || errno == ENOENT) &&
        ::fsync(folder.get()) == 0) {
        return {};
    }
    return failed();
}

std::vector<config::Problem> add_persistent_exports(config::Options& options) {
    if (options.state.empty()) return {};
    StateFolder::Exports read = StateFolder(options.state).read();
    const config::ExportsByName configured(options.exports);
    for (config::ExportOptions& each : read.exports) {
        if (configured.find(each.name) == nullptr) {
            options.exports.push_back(std::move(each));
            continue;
        }
        config::Problem conflict = problem(
            fmt::format("{}/{}", options.state, StateFolder::file_name(each.name)),
            fmt::format("the configuration has an export {} as well; rename that one, or remove "
                        "this file",
                        config::in_quotes(each.name)));
        conflict.key = "name";
        read.problems.push_back(std::move(conflict));
    }
    if (options.exports.size() > config::rules::max_exports) {
        read.problems.push_back(problem(
            options.state,
            fmt::format("its {} exports and the {} of the configuration are more than a server can "
                        "have ({}); remove some",
                        read.exports.size(), options.exports.size() - read.exports.size(),
                        config::rules::max_exports)));
    }
    return std::move(read.problems);
}

}  // namespace gpunbd::server
