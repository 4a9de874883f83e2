#include "server/tools/attach/swap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/process.hpp"
#include "server/tools/attach/holders.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

namespace {

// Reads memory back from swap before swapoff, which itself waits for each read of about 32 KiB and
// is therefore slow over NBD.

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

// Requests read-ahead of all swapped-out memory of processes and tmpfs, in large requests and in
// parallel. `swapped`: the amount. This is a hint: swapoff reads what read-ahead does not reach,
// and the kernel may drop the pages again if memory is short.
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

using Bytes = std::vector<std::byte>;

constexpr std::string_view signature = "SWAPSPACE2";
constexpr std::size_t header_at = 1024;  // after the space for a boot sector
constexpr std::size_t looked_at = std::size_t{128}
                                  << 10;  // file systems have their signature within it
constexpr std::uint64_t least_pages = 10;

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t signature_at() { return page_size() - signature.size(); }

bool is_swap(const Bytes& start) {
    return std::memcmp(&start[signature_at()], signature.data(), signature.size()) == 0;
}

bool is_empty(const Bytes& start) {
    return std::all_of(start.begin(), start.end(),
                       [](std::byte each) { return each == std::byte{0}; });
}

// The kernel's union swap_header, version 1, in native byte order; a UUID and a label follow the
// three numbers.
Bytes swap_header(std::uint64_t pages) {
    struct Numbers {
        std::uint32_t version;
        std::uint32_t last_page;
        std::uint32_t bad_pages;
    };
    Bytes page(page_size());
    const Numbers numbers{
        .version = 1,
        .last_page = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages - 1, UINT32_MAX)),
        .bad_pages = 0};
    std::memcpy(&page[header_at], &numbers, sizeof numbers);
    std::byte* const uuid = &page[header_at + sizeof numbers];
    constexpr std::size_t uuid_size = 16;
    [[maybe_unused]] const ssize_t filled = ::getrandom(uuid, uuid_size, 0);
    uuid[6] = (uuid[6] & std::byte{0x0f}) | std::byte{0x40};  // a random UUID, RFC 9562
    uuid[8] = (uuid[8] & std::byte{0x3f}) | std::byte{0x80};
    constexpr std::string_view label = "gpunbd";
    std::memcpy(uuid + uuid_size, label.data(), label.size());
    std::memcpy(&page[signature_at()], signature.data(), signature.size());
    return page;
}

// Read-ahead also reads what is in other swap areas, so it pays off only if most swap is in this
// one.
bool is_nearly_all(const SwapArea& area, const std::string& root) {
    std::uint64_t all = 0;
    for (const SwapArea& each : read_swap_areas(root)) all += each.used;
    return area.used >= all - all / 8;
}

}  // namespace

std::optional<Failure> make_swap(const std::string& file, std::uint64_t size) {
    const std::uint64_t pages = size / page_size();
    if (pages < least_pages) return Failure{file + " is too small for swap; use a larger export"};
    const OwnedFd device(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (device.get() < 0) return failure(file, errno);
    Bytes start(std::max(std::min<std::uint64_t>(looked_at, size), page_size()));
    const ssize_t got = ::pread(device.get(), start.data(), start.size(), 0);
    if (got != static_cast<ssize_t>(start.size())) return failure(file, got < 0 ? errno : EIO);
    if (is_swap(start)) return std::nullopt;
    if (!is_empty(start)) {
        return Failure{file +
                       " contains data that is not a swap area; if it is not needed, attach the "
                       "device without --swap and clear it: wipefs -a " +
                       file};
    }
    const Bytes header = swap_header(pages);
    const ssize_t put = ::pwrite(device.get(), header.data(), header.size(), 0);
    if (put != static_cast<ssize_t>(header.size())) return failure(file, put < 0 ? errno : EIO);
    if (::fsync(device.get()) != 0) return failure(file, errno);
    return std::nullopt;
}

std::optional<Failure> swap_on(const Device& device) {
    if (!swaps_on(device).empty()) return std::nullopt;  // the device was taken over
    const std::string file = device.path();
    if (auto failed = make_swap(file, device.size())) return failed;
    if (::swapon(file.c_str(), SWAP_FLAG_PREFER | swap_priority) == 0) return std::nullopt;
    if (errno == EPERM)
        return Failure{
            "cannot enable swap: it needs CAP_SYS_ADMIN, and the kernel allows at most 23 swap "
            "areas"};
    if (errno == EINVAL) {
        return Failure{file +
                       " has the signature of a swap area with another size or page size; attach "
                       "it without --swap and create a new one: mkswap " +
                       file};
    }
    return failure("swap on " + file, errno);
}

std::optional<Failure> swap_off(const SwapArea& area, const std::string& root) {
    if (auto failed = no_room_for(area, root)) return failed;
    if (is_nearly_all(area, root)) read_swap_ahead(area.used, root);
    if (::swapoff(area.file.c_str()) == 0) return std::nullopt;
    if (errno == ENOMEM) {
        return Failure{"the swapped-out memory on " + area.file +
                       " does not fit into RAM; end programs, or add other swap, first"};
    }
    return failure("swap off " + area.file, errno);
}

std::optional<Failure> swap_off(const Device& device) {
    for (const SwapArea& area : swaps_on(device)) {
        if (auto failed = swap_off(area, device.root())) return failed;
    }
    return std::nullopt;
}

}  // namespace gpunbd::attach
