// A server that the keeper has started beside the end of the one before it. It opens what takes
// long to open, and waits for its turn (Turn).
#pragma once

#include <sys/types.h>

#include <optional>

#include "server/keeping/kept_descriptors.hpp"
#include "server/keeping/server_process.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

class Standby {
 public:
    // It is handed what is kept now: no more may be stored until its turn. Where it cannot be
    // started, there is none.
    Standby(const ServerStart& start, KeptDescriptors& kept);
    ~Standby();  // kills one whose turn has not come
    Standby(const Standby&) = delete;
    Standby& operator=(const Standby&) = delete;

    // 0: there is none.
    pid_t pid() const { return pid_; }
    // Its turn has come. Its process id: it is the server now.
    pid_t go();
    // It has been waited for.
    void ended() { pid_ = 0; }

 private:
    pid_t pid_ = 0;
    std::optional<OwnedFd> turn_;
};

}  // namespace gpunbd::server
