#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace gpunbd::server {

struct Holder {
    pid_t pid = 0;  // 0: unknown
    std::string program = {};

    // " by nginx (pid 12)", or nothing.
    std::string by() const;
};

Holder process(pid_t pid);
// Finds the process that listens on an address in use, from /proc. Its name and process id help
// more than "address in use".
// The process whose socket on `port` conflicts with `address`, which has the form of inet_pton(): 4
// or 16 bytes. Only root finds processes of other users.
Holder tcp_port_holder(const std::string& address_bytes, std::uint16_t port);

// An address that cannot be listened on: a one-line message with cause and remedy, and a code for
// callers.
struct AddressError : std::runtime_error {
    enum class Kind {
        taken,   // another process listens there; `holder` names it if known
        absent,  // this machine has no such address
        other,
    };
    AddressError(Kind what_kind, const std::string& text, Holder who = {})
        : std::runtime_error(text), kind(what_kind), holder(std::move(who)) {}

    Kind kind;
    Holder holder;
};

}  // namespace gpunbd::server
