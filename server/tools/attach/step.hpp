#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string_view>

#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

// Log lines of `gpunbd attach`, to standard error or the kernel log. Writing never blocks, because
// the reader may itself wait for the device.

void log(std::string_view text);

// Sends later lines to the kernel log (dmesg, the journal), if it can be opened.
void say_to_kernel_log();

// Runs work that may block on the device in a child process, because this process must never block
// on it.
class Step {
 public:
    static Expected<Step, Failure> begin(const std::function<std::optional<Failure>()>& work);

    int ended() const { return result_pipe_.get(); }  // readable once the step has ended
    std::optional<Failure> result();                  // valid once, after the step has ended

 private:
    Step(pid_t process, OwnedFd result_pipe)
        : process_(process), result_pipe_(std::move(result_pipe)) {}

    pid_t process_;
    OwnedFd result_pipe_;
};

}  // namespace gpunbd::attach
