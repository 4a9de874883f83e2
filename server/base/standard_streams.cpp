#include "server/base/standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpunbd::server {

void occupy_closed_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        // open() returns the lowest free descriptor, which is this one.
        if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

bool finish_output() {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && std::ferror(stdout) == 0) return true;
    report_lost_output(errno);
    return false;
}

void report_lost_output(int error) {
    fmt::print(stderr, "gpunbd: standard output is incomplete: {}\n",
               error != 0 ? std::strerror(error) : "it cannot be written");
}

}  // namespace gpunbd::server
