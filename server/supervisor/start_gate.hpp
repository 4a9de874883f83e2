// When a server that `gpunbd keep` has started beside the end of another may begin: until then it
// changes nothing that both have.
#pragma once

#include <optional>

#include "server/supervisor/inherited_descriptors.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class StartGate {
 public:
    // Taken out of `handed_over`. Null: it has come already.
    static std::optional<StartGate> in(InheritedDescriptors& handed_over);

    // Returns once it has come. False: it never will.
    bool wait() const;

 private:
    explicit StartGate(OwnedFd pipe) : pipe_(std::move(pipe)) {}

    OwnedFd pipe_;
};

}  // namespace gpunbd::server
