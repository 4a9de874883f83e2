#pragma once

#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gpunbd::server {

// A write() to a log file in a tmpfs waits for the page of that file. The page may be swapped out
// to the device that this process serves.

// Empty: writing to `descriptor` does not wait for swap. Otherwise the problem and its remedy.
std::optional<std::string> why_log_may_hang(int descriptor = STDERR_FILENO);

// Marks threads as I/O flushers (PR_SET_IO_FLUSHER): the kernel does not start writeback to swap
// when they allocate memory.

// For the calling thread and the threads that it starts later. Returns the problem and its remedy,
// if any.
std::optional<std::string> become_io_flusher();

// Real-time priority. The process that writes swapped-out pages must run immediately when memory is
// short.

inline constexpr int real_time_priority = 5;  // of SCHED_FIFO: above all normal threads

// For the calling thread and the threads that it starts later. Returns the problem and its remedy,
// if any.
std::optional<std::string> run_in_real_time();
// For the calling thread, not for its child processes.
std::optional<std::string> run_alone_in_real_time();

// Exempts the server from the OOM killer. If it were killed, all swapped-out pages would be lost.

// Also holds for child processes. Returns the problem and its remedy, if any.
std::optional<std::string> escape_oom_killer();

// Configures malloc to never return memory to the system, because it may not be available again.

// Freed memory stays in the heap. Call it before other threads start.
void never_shrink_heap();
// Reserves heap memory for the clients of the calling thread.
void grow_heap();

// The size of thread stacks. Stacks are locked completely: 8 MiB each would use a large part of a
// small machine's memory.

// A worker needs a tenth of it. Drivers start threads of their own.
inline constexpr std::size_t thread_stack = 1024 * 1024;  // bytes

// Sets the default of threads that are started later.
void make_thread_stacks_small();

// The protections of a server that its own machine swaps to. All of them are required; a protection
// that is not available is an error. server/PERFORMANCE.md, "Swap protections", has the
// measurements.

// Call it before other threads start, so that it also holds for the threads of drivers. Returns the
// problems and their remedies. If there are none, lock_all_memory() completes the protection.
std::vector<std::string> protect_process();

// Returns the protections that are not available. Does not change this process.
std::vector<std::string> missing_protections();

// For the log: all protections, in one line.
std::string protection_summary();

}  // namespace gpunbd::server
