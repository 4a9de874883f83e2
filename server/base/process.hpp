#pragma once

#include <sys/types.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

// Queries systemd whether the machine shuts down.

// Runs systemctl, so it may block. Returns false without systemd.
bool machine_is_shutting_down();

// Standard input, output and error. Lost output is an error, and no socket gets the number of a
// closed stream.

// Call it before anything else is opened. Writing to a stream that was closed still fails.
void occupy_closed_streams();
// Flushes standard output. Returns false, and prints the reason to standard error, if output was
// lost.
bool finish_output();
// Prints that writing to standard output failed with this errno.
void report_lost_output(int error);

// Reduces the privileges of the process.

// From now on no program that this thread, or a thread that it starts, executes gains privileges,
// for example by a set-user-ID bit.
void give_up_new_privileges();

// Keeps the data of clients out of core files and crash collectors. Also holds for child processes.
void keep_memory_out_of_core_dumps();

// --exit-with-parent: the server ends with the test or script that started it.

// This process gets SIGTERM when the parent ends. Call it on the main thread. `parent` is the
// parent at the start of the program. Returns false if that process has ended since.
bool end_with_parent(pid_t parent);

// The path and the arguments that this program was started with.

// Returns the absolute path passed to exec. Restarts use it, so that an upgraded file is run.
// /proc/self/exe names the old file, and it resolves symbolic links, so a changed link would be
// missed. It is the fallback if the path does not lead to this program.
std::string own_program();
// The arguments, without the name of the program.
std::vector<std::string> own_arguments();

// The limit of open files. Each kept slab and each connection needs a descriptor.

// Raises the limit as far as permitted. The usual soft limit of 1024 exists for programs that use
// select(). Returns an error with its remedy if the limit stays below `needed`.
std::optional<std::string> raise_open_files(std::uint64_t needed);

// Adds the limit and the remedy to an error of a system call that has got no descriptor.
std::string with_open_files_limit(std::string error);

// Exit codes, as in gpunbd(8).

inline constexpr int exit_failure = 1;
// Wrong usage or an invalid configuration. Supervisors do not restart the server, because it would
// fail again.
inline constexpr int exit_usage = 2;

// Reads environment variables that a supervisor sets for this process, and removes them so that
// child processes do not inherit them.

inline std::optional<std::string> take_variable(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    std::string value(text);
    ::unsetenv(name);
    return value;
}

inline std::optional<std::uint64_t> decimal(std::string_view digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

}  // namespace gpunbd::server
