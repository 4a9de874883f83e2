// The signals that `gpunbd top` takes in its turn, so that each of them finds the terminal in a
// state that can be taken back.
#pragma once

#include <signal.h>

#include <optional>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

class Signals {
 public:
    // Throws std::system_error.
    Signals();
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    int fd() const { return fd_.get(); }
    // The next one that has come.
    std::optional<int> take();
    // Stops this process as SIGTSTP does; returns when it goes on.
    static void stop();

 private:
    sigset_t before_{};
    const OwnedFd fd_;
};

}  // namespace gpunbd::status
