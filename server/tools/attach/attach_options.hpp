// The arguments of `gpunbd attach`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpunbd::attach {

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

}  // namespace gpunbd::attach
