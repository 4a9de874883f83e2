// Names of stored descriptors (sd_listen_fds_with_names(3)), for both sides: the server that stores
// them, and `gpunbd keep`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace gpunbd::server {

inline constexpr std::size_t max_descriptor_name = 255;

// The next process gets all names in one environment variable, separated by ':'. The kernel does
// not execute a program with a variable longer than 128 KiB.
inline constexpr std::size_t max_all_names =
    std::size_t{128} * 1024 - std::string_view("LISTEN_FDNAMES=").size() - 1;

// The prefix of descriptors that a server has stored. Sockets of socket activation have other
// names: systemd uses the unit's name, gpunbd.socket.
inline constexpr std::string_view own_prefix = "gpunbd/";

// The pipe of a StartGate: a pre-started server reads from it before it begins.
inline constexpr std::string_view start_gate_name = "gpunbd/turn";

inline bool is_descriptor_name(std::string_view name) {
    return !name.empty() && name.size() <= max_descriptor_name &&
           std::all_of(name.begin(), name.end(),
                       [](char each) { return each >= ' ' && each <= '~' && each != ':'; });
}

}  // namespace gpunbd::server
