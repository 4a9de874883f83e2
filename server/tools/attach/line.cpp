#include "server/tools/attach/line.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <string>

#include "server/base/line.hpp"

namespace gpunbd::attach {
namespace {

// Open until the process exits; -1: lines go to standard error.
int kernel_log = -1;

}  // namespace

void log(std::string_view text) {
    std::string line = "gpunbd attach: ";
    line += text.substr(0, PIPE_BUF - line.size() - 1);
    line += '\n';
    if (kernel_log < 0) return server::write_without_waiting(line);
    // Does not block: the kernel copies the line to its ring buffer.
    [[maybe_unused]] const ssize_t written = ::write(kernel_log, line.data(), line.size());
}

void say_to_kernel_log() { kernel_log = ::open("/dev/kmsg", O_WRONLY | O_CLOEXEC); }

}  // namespace gpunbd::attach
