// What a descriptor may be called that somebody keeps, as sd_listen_fds_with_names(3) has it; here
// for both sides: the server that stores it, and `gpunbd keep`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace gpunbd::server {

inline constexpr std::size_t max_descriptor_name = 255;

// All names go to the next process in one variable of its environment, a ':' between them. The
// kernel refuses to start a program with one that is longer than 128 KiB.
inline constexpr std::size_t max_all_names =
    std::size_t{128} * 1024 - std::string_view("LISTEN_FDNAMES=").size() - 1;

// Descriptors that a server has stored itself are called so; others may hand it sockets, too, and
// call those as they like. systemd calls a socket by its unit: gpunbd.socket.
inline constexpr std::string_view own_prefix = "gpunbd/";

// A pipe that a server has to read from before it begins, where one is handed over: see StartGate.
inline constexpr std::string_view turn_name = "gpunbd/turn";

inline bool is_descriptor_name(std::string_view name) {
    return !name.empty() && name.size() <= max_descriptor_name &&
           std::all_of(name.begin(), name.end(),
                       [](char each) { return each >= ' ' && each <= '~' && each != ':'; });
}

}  // namespace gpunbd::server
