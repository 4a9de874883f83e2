// Blocks a pre-started server until the previous one is dead. Before that it must not change shared
// state.
#pragma once

#include <optional>

#include "server/supervisor/inherited_descriptors.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class StartGate {
 public:
    // Takes the pipe out of `handed_over`. Null: this server need not wait.
    static std::optional<StartGate> in(InheritedDescriptors& handed_over);

    // Waits for the release. Returns false if the keeper has closed the pipe.
    bool wait() const;

 private:
    explicit StartGate(OwnedFd pipe) : pipe_(std::move(pipe)) {}

    OwnedFd pipe_;
};

}  // namespace gpunbd::server
