// Who listens on an address that was wanted, as far as /proc tells: a name and a process id help
// more than "address in use".
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace gpunbd::server {

struct Holder {
    pid_t pid = 0;  // 0: it cannot be told
    std::string program = {};

    // " by nginx (pid 12)", or nothing.
    std::string by() const;
};

Holder process(pid_t pid);
// Of what listens on `port` and stands in the way of `address`, as inet_pton() gives it: 4 or 16
// bytes. Another user's processes are seen by root only.
Holder tcp_port_holder(const std::string& address_bytes, std::uint16_t port);

}  // namespace gpunbd::server
