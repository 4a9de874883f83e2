// --background: a second process does the work and stays, and the process that was called ends once
// the other one is ready or has failed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class Background {
 public:
    enum class Output { discard, keep_stderr };

    struct CallerEnds {
        std::optional<int>
            status;  // none: a signal killed the other process, which printed nothing
    };

    // Forks; call it before there are threads. The other process is in a session of its own, and
    // of all inherited descriptors it keeps standard error only. Returns CallerEnds in the process
    // that was called, once the other one is ready or has ended. Until then the other one gets
    // SIGTERM if its caller dies. Returns the text of an error if no process can be started.
    static std::variant<Background, CallerEnds, std::string> enter();

    // Lets the caller end with status 0.
    void announce_ready(Output output);

 private:
    explicit Background(OwnedFd caller) : caller_(std::move(caller)) {}

    OwnedFd caller_;
};

// Runs `work` in the background and returns the exit status of this process; `work` calls its
// argument once it is ready. Refused under a supervisor, which would take the end of this process
// for the end of the service. Errors go to standard error; `command` is their first word.
int run_in_background(std::string_view command,
                      const std::function<int(const std::function<void()>& on_ready)>& work);

}  // namespace gpunbd::server
