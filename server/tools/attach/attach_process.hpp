#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::attach {

// The arguments of `gpunbd attach`.
struct AttachOptions {
    std::string uri;
    std::uint32_t device = 0;  // the N of /dev/nbdN
    unsigned connections = 1;
    std::optional<std::uint64_t> timeout = {};       // seconds
    std::optional<std::uint64_t> dead_timeout = {};  // seconds
    std::optional<std::uint32_t> block_size = {};
    bool swap = false;
    bool unit = false;  // --systemd: print a unit and do not attach
    bool background = false;
};

// `gpunbd attach`, which attaches a device and stays until it is detached, and `gpunbd detach`.

// Both return the exit status and print errors to standard error. With --systemd, run_attach() only
// prints the unit.
int run_attach(const AttachOptions& command);
int run_detach(std::uint32_t number, bool force);

}  // namespace gpunbd::attach
