// When a server that `gpunbd keep` has started beside the end of another may begin: until then it
// changes nothing that both have.
#pragma once

#include <optional>

#include "server/keeping/handed_over.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

class Turn {
 public:
    // Taken out of `handed_over`. Null: it has come already.
    static std::optional<Turn> in(HandedOver& handed_over);

    // Returns once it has come. False: it never will.
    bool wait() const;

 private:
    explicit Turn(OwnedFd pipe) : pipe_(std::move(pipe)) {}

    OwnedFd pipe_;
};

}  // namespace gpunbd::server
