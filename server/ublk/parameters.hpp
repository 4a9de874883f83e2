// The parameters of the block device of an export.
#pragma once

#include "server/exports/export.hpp"
#include "server/ublk/kernel_interface.hpp"

namespace gpunbd::server::ublk {

constexpr std::uint32_t max_request = 1 << 20;  // bytes of payload

Parameters parameters_of(const Export& exported);

// What the kernel stores with a device, for later servers: that gpunbd made it, for which name, for
// which contents, and with which parameters.
struct Mark {
    explicit Mark(const Export& exported);
    explicit Mark(std::uint64_t stored) : value(stored) {}

    bool is_gpunbd() const;
    bool same_name(Mark other) const;
    bool same_contents(Mark other) const;  // and the same name
    bool operator==(const Mark&) const = default;

    std::uint64_t value;
};

}  // namespace gpunbd::server::ublk
