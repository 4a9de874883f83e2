#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::server {

// The memory that the kernel should reserve (vm.min_free_kbytes) on a machine that swaps to its own
// server.

// What a server with so many workers needs to start, in KiB: heaps, stacks and page tables, without
// staging memory for GPUs.
constexpr std::uint64_t start_memory(std::uint32_t workers) { return (10 + 7 * workers) * 1024; }

// In KiB, as in /proc/meminfo and vm.min_free_kbytes. When all other memory is in use, a server
// that restarts has a part of the reserve for itself, because it has real-time priority: a quarter
// of it in older kernels, half of it in Debian's 6.1.192. At least 1/12 of the memory, up to 64
// MiB, made swapping reliable in tests. Small machines fail with much more than 1/6 of the memory.
constexpr std::uint64_t fit_reserve(std::uint64_t memory, std::uint32_t workers) {
    const std::uint64_t to_swap = std::min<std::uint64_t>(memory / 12, 65'536);
    return std::min(std::max(to_swap, 4 * start_memory(workers)), memory / 6);
}

// True if the reserve leaves too little memory for everything else.
constexpr bool is_reserve_too_large(std::uint64_t reserve, std::uint64_t memory) {
    return reserve > memory / 5;
}

// Resource limits of the process that would prevent its protection.

// Raises the limit as far as permitted. Returns true if the resource is unlimited then.
bool lift_limit(int resource);

// Locks memory. A server that waits for one of its own swapped-out pages would deadlock the
// kernel's swap.

// Locks the current mappings; their untouched pages are locked on first access. Returns the problem
// and its remedy, if any.
std::optional<std::string> lock_touched_memory();

// Raises RLIMIT_MEMLOCK to unlimited; otherwise a later allocation would fail. Returns the problem
// and its remedy, if any.
std::optional<std::string> lift_lock_limit();
// Locks and populates all current and future mappings. Returns the problem and its remedy, if any.
// Call it after the warm-up: memory that is mapped later is present at once, in small pages.
std::optional<std::string> lock_all_memory();

}  // namespace gpunbd::server
