#include "server/keeping/locked_memory.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "server/keeping/line.hpp"

namespace gpunbd::server {

namespace {

// A locked stack may not grow beyond RLIMIT_MEMLOCK: it does so before.
void touch_stack() {
    std::array<volatile char, std::size_t{256} * 1024> room;
    for (std::size_t at = 0; at < room.size(); at += 1024) room[at] = 0;
}

}  // namespace

// MCL_ONFAULT: the libraries that the server needs are mapped, and never touched here. Not
// MCL_FUTURE: an allocation that would pass the limit fails then, and the keeper with it.
void lock_memory() {
    ::malloc_trim(0);  // what reading the command line took
    touch_stack();
    if (::mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) return;
    say("its memory cannot be locked ({}): where memory is short, a restart may take longer; raise "
        "LimitMEMLOCK= (systemd), --ulimit memlock= (Docker) or ulimit -l (a shell)",
        std::strerror(errno));
}

}  // namespace gpunbd::server
