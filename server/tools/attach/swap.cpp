#include "server/tools/attach/swap.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/swap.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/swap_readahead.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {
namespace {

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
