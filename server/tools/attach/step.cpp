#include "server/tools/attach/step.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "server/base/line.hpp"

namespace gpunbd::attach {

namespace {

// Open until the process exits; -1: lines go to standard error.
int kernel_log = -1;

using Work = std::function<std::optional<Failure>()>;

// An exception must not return to the code of the parent.
[[noreturn]] void run(const Work& work, int result_pipe) noexcept {
    const auto failed = work();
    const std::string text = failed ? failed->text.substr(0, PIPE_BUF) : std::string();
    const bool reported = text.empty() || ::write(result_pipe, text.data(), text.size()) > 0;
    ::_exit(failed || !reported ? 1 : 0);
}

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

Expected<Step, Failure> Step::begin(const std::function<std::optional<Failure>()>& work) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failure("pipe", errno);
    OwnedFd ours(ends[0]);
    const OwnedFd theirs(ends[1]);
    const pid_t process = ::fork();
    if (process < 0) return failure("fork", errno);
    if (process == 0) run(work, theirs.get());
    return Step(process, std::move(ours));
}

std::optional<Failure> Step::result() {
    std::array<char, PIPE_BUF> text{};
    const ssize_t got = ::read(result_pipe_.get(), text.data(), text.size());
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
    if (got > 0) return Failure{std::string(text.data(), static_cast<std::size_t>(got))};
    return Failure{"the process of this step was killed"};
}

}  // namespace gpunbd::attach
