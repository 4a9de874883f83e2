#include "server/base/own_program.hpp"

#include <sys/auxv.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace gpunbd::server {

namespace {

constexpr const char* running_file = "/proc/self/exe";

// True without /proc, where the running file is unknown.
bool is_running_file(const std::string& path) {
    struct stat one {};
    struct stat other {};
    if (::stat(path.c_str(), &one) != 0) return false;
    if (::stat(running_file, &other) != 0) return true;
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

std::string own_program() {
    std::error_code error;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): getauxval() returns the address as an integer
    const auto* const given = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    if (given != nullptr) {
        std::string path = std::filesystem::absolute(given, error).string();
        // After fexecve() the path names a descriptor, which is closed later.
        if (!error && !path.starts_with("/dev/fd/") && is_running_file(path)) return path;
    }
    const auto path = std::filesystem::read_symlink(running_file, error);
    return error ? running_file : path.string();
}

std::vector<std::string> own_arguments() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> arguments;
    for (std::string each; std::getline(file, each, '\0');) arguments.push_back(each);
    if (!arguments.empty()) arguments.erase(arguments.begin());
    return arguments;
}

}  // namespace gpunbd::server
