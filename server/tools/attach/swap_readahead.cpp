#include "server/tools/attach/swap_readahead.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "server/base/environment.hpp"
#include "server/tools/attach/mounts.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {
namespace {

namespace fs = std::filesystem;

constexpr std::uintptr_t advised_at_a_time = std::uintptr_t{8} << 20;
constexpr std::uint64_t worth_a_search = std::uint64_t{4} << 20;  // in all processes and files
constexpr std::size_t worth_a_call = std::size_t{64} << 10;  // the read-ahead of swapoff itself
constexpr std::size_t stat_block = 512;

struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool shared_memory = false;  // of tmpfs, memfd_create or System V; otherwise anonymous
};

bool names_shared_memory(std::string_view name) {
    constexpr std::array<std::string_view, 4> starts{"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"};
    return std::any_of(starts.begin(), starts.end(),
                       [&](std::string_view start) { return name.starts_with(start); });
}

// The ranges of /proc/PID/maps that can be swapped out.
std::vector<Range> swappable_ranges(const std::string& process) {
    std::vector<Range> out;
    std::ifstream file(process + "/maps");
    for (std::string line; std::getline(file, line);) {
        Range range;
        int name_at = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &range.begin,
                        &range.end, &name_at) < 2) {
            continue;
        }
        const std::string_view name =
            std::string_view(line).substr(std::min(static_cast<std::size_t>(name_at), line.size()));
        range.shared_memory = names_shared_memory(name);
        const bool anonymous = name.empty() || (name[0] == '[' && !name.starts_with("[v"));
        if (range.shared_memory || anonymous) out.push_back(range);
    }
    return out;
}

// VmSwap of /proc/PID/status, which does not include shared memory.
std::uint64_t swapped_by(const std::string& process) {
    std::ifstream file(process + "/status");
    for (std::string line; std::getline(file, line);) {
        std::uint64_t value = 0;
        if (std::sscanf(line.c_str(), "VmSwap: %" SCNu64, &value) == 1) return value * 1024;
    }
    return 0;
}

void advise(int process, const Range& range) {
    for (std::uintptr_t at = range.begin; at < range.end; at += advised_at_a_time) {
        const iovec piece{.iov_base = reinterpret_cast<void*>(at),
                          .iov_len = std::min(advised_at_a_time, range.end - at)};
        if (::process_madvise(process, &piece, 1, MADV_WILLNEED, 0) < 0) return;
    }
}

void read_process_ahead(std::uint64_t pid, const std::string& folder, bool has_swapped,
                        bool shared_memory) {
    // The raw system call, because sys/pidfd.h of glibc 2.36 does not compile as C++.
    const OwnedFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (process.get() < 0) return;
    for (const Range& range : swappable_ranges(folder)) {
        if (range.shared_memory ? shared_memory : has_swapped) advise(process.get(), range);
    }
}

void read_file_ahead(const fs::path& path) {
    const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME));
    struct stat facts {};
    if (file.get() < 0 || ::fstat(file.get(), &facts) != 0 || facts.st_size <= 0) return;
    const auto size = static_cast<std::size_t>(facts.st_size);
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) return;
    ::madvise(mapped, size, MADV_WILLNEED);
    ::munmap(mapped, size);
}

// Skips other file systems and files smaller than swapoff's own read-ahead.
void read_tmpfs_ahead(const std::string& place) {
    struct stat root {};
    if (::lstat(place.c_str(), &root) != 0) return;
    std::error_code error;
    fs::recursive_directory_iterator at(place, fs::directory_options::skip_permission_denied,
                                        error);
    for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
        struct stat facts {};
        if (::lstat(at->path().c_str(), &facts) != 0) continue;
        if (facts.st_dev != root.st_dev) {
            at.disable_recursion_pending();
        } else if (S_ISREG(facts.st_mode) &&
                   static_cast<std::size_t>(facts.st_blocks) * stat_block >= worth_a_call) {
            read_file_ahead(at->path());
        }
    }
}

}  // namespace

void read_swap_ahead(std::uint64_t swapped, const std::string& root) {
    struct Process {
        std::uint64_t pid;
        std::string folder;
        std::uint64_t swapped;
    };
    std::vector<Process> processes;
    std::uint64_t anonymous = 0;
    std::error_code error;
    for (fs::directory_iterator at(root + "proc", error), end; !error && at != end;
         at.increment(error)) {
        const auto pid = server::decimal(at->path().filename().string());
        if (!pid) continue;
        processes.push_back({*pid, at->path().string(), swapped_by(at->path().string())});
        anonymous += processes.back().swapped;
    }
    const bool shared_memory = swapped > anonymous + worth_a_search;
    for (const Process& each : processes) {
        if (each.swapped != 0 || shared_memory) {
            read_process_ahead(each.pid, each.folder, each.swapped != 0, shared_memory);
        }
    }
    if (!shared_memory) return;
    for (const Mount& mount : read_mounts(root)) {
        if (mount.type == "tmpfs") read_tmpfs_ahead(mount.place);
    }
}

}  // namespace gpunbd::attach
