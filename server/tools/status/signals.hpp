// The signals of `gpunbd top`. They are read from a descriptor, so that the terminal can be
// restored first.
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
    // The next pending signal, if any.
    std::optional<int> take();
    // Stops this process as SIGTSTP does; returns when it is resumed.
    static void stop();

 private:
    sigset_t before_{};
    const OwnedFd fd_;
};

}  // namespace gpunbd::status
