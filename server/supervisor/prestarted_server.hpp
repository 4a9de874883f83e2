// A server that the keeper has started beside the end of the one before it. It opens what takes
// long to open, and waits for its turn (StartGate).
#pragma once

#include <sys/types.h>

#include <optional>

#include "server/supervisor/server_process.hpp"
#include "server/supervisor/stored_descriptors.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class PrestartedServer {
 public:
    // It is handed what is kept now: no more may be stored until its turn. Where it cannot be
    // started, there is none.
    PrestartedServer(const ServerStart& start, StoredDescriptors& kept);
    ~PrestartedServer();  // kills one whose turn has not come
    PrestartedServer(const PrestartedServer&) = delete;
    PrestartedServer& operator=(const PrestartedServer&) = delete;

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
