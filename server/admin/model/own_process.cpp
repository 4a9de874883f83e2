#include "server/admin/model/own_process.hpp"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "config/build_text.hpp"

namespace gpunbd::server {

namespace {

double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::uint64_t size = 0;
    std::uint64_t resident = 0;  // both in pages
    file >> size >> resident;
    return file ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

std::uint64_t open_files() {
    std::error_code error;
    const std::filesystem::directory_iterator files("/proc/self/fd", error);
    if (error) return 0;
    // Without the descriptor that lists the folder.
    return static_cast<std::uint64_t>(std::distance(begin(files), end(files))) - 1;
}

}  // namespace

ProcessStatus describe_own_process() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    return {.version = config::version(),
            .commit = config::commit(),
            .build = config::build_summary(),
            .pid = static_cast<std::uint64_t>(::getpid()),
            .cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
            .resident = resident_bytes(),
            .open_files = open_files(),
            .max_open_files = files.rlim_cur};
}

}  // namespace gpunbd::server
