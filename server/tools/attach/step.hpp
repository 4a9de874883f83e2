// Work that may wait for a device, in a process of its own: what keeps the device's connections
// alive must never wait for it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

class Step {
 public:
    static Or<Step> begin(const std::function<std::optional<Failure>()>& work);

    int ended() const { return told_.get(); }  // can be read once it has ended
    std::optional<Failure> result();           // of one that has; once

 private:
    Step(pid_t process, OwnedFd told) : process_(process), told_(std::move(told)) {}

    pid_t process_;
    OwnedFd told_;
};

}  // namespace gpunbd::attach
