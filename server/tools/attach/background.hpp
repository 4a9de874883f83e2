// `gpunbd attach --background`: a second process attaches and stays, and the one that was called
// ends when the device is ready, or when it could not be attached.
#pragma once

#include <utility>
#include <variant>

#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

class Background {
 public:
    struct CallerEnds {
        int status;
    };

    // Forks; call it before there are threads. Returns CallerEnds in the process that was called,
    // once the other one is ready or has ended. Until then the other one gets SIGTERM if its caller
    // dies.
    static std::variant<Background, CallerEnds, Failure> enter();

    // Leaves the terminal and lets the caller end with status 0. Lines then go to the kernel's log.
    void announce_ready();

 private:
    explicit Background(OwnedFd caller) : caller_(std::move(caller)) {}

    OwnedFd caller_;
};

}  // namespace gpunbd::attach
