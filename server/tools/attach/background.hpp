// `gpunbd attach --background`: a second process attaches the device and stays. The first process
// exits when the device is ready or when attaching has failed.
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

    // Forks, so call it before threads exist. Returns CallerEnds in the first process when the
    // second one is ready or has exited. Until then the second process gets SIGTERM if the first
    // one dies.
    static std::variant<Background, CallerEnds, Failure> enter();

    // Detaches from the terminal and makes the first process exit with status 0. Later lines go to
    // the kernel log.
    void announce_ready();

 private:
    explicit Background(OwnedFd caller) : caller_(std::move(caller)) {}

    OwnedFd caller_;
};

}  // namespace gpunbd::attach
