#include "server/base/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "storage/base/program_output.hpp"

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

constexpr std::string_view remedy =
    "raise it by LimitNOFILE= (systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell)";

}  // namespace

bool machine_is_shutting_down() {
    // Not is-system-running, which reports "starting" until the boot has finished.
    const auto jobs =
        storage::output_of({"systemctl", "list-jobs", "--no-legend", "shutdown.target"});
    return jobs && jobs->find("shutdown.target start ") != std::string::npos;
}

void occupy_closed_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        // open() returns the lowest free descriptor, which is this one.
        if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

bool finish_output() {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && std::ferror(stdout) == 0) return true;
    report_lost_output(errno);
    return false;
}

void report_lost_output(int error) {
    fmt::print(stderr, "gpunbd: standard output is incomplete: {}\n",
               error != 0 ? std::strerror(error) : "it cannot be written");
}

void give_up_new_privileges() { ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }

// Slabs, staging memory, receive buffers and stacks contain the data of clients, so no memory is
// dumped. PR_SET_DUMPABLE is not used: it would also hide /proc/PID from the server's own user,
// where `gpunbd check` and other programs look for the holder of a port.
void keep_memory_out_of_core_dumps() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
        // 1, not 0: with 0 the kernel would still pass a dump with registers to a collector.
        limit.rlim_cur = std::min<rlim_t>(1, limit.rlim_max);
        ::setrlimit(RLIMIT_CORE, &limit);
    }
    std::ofstream("/proc/self/coredump_filter") << "0\n";
}

bool end_with_parent(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // The parent may have ended before the prctl().
    return ::getppid() == parent;
}

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

std::optional<std::string> raise_open_files(std::uint64_t needed) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur >= needed) return std::nullopt;
    return fmt::format("up to {} descriptors may be needed, but the limit of open files is {}; {}",
                       needed, limit.rlim_cur, remedy);
}

std::string with_open_files_limit(std::string error) {
    rlimit limit{};
    if (error.find(std::strerror(EMFILE)) == std::string::npos ||
        ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return error;
    }
    return fmt::format("{}: the limit is {}; {}", error, limit.rlim_cur, remedy);
}

}  // namespace gpunbd::server
