// A server that the keeper starts while the previous one still exits. It opens devices and then
// waits at its StartGate.
#pragma once

#include <sys/types.h>

#include <optional>

#include "server/supervisor/server_process.hpp"
#include "server/supervisor/stored_descriptors.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class PrestartedServer {
 public:
    // Hands over the currently stored descriptors; no more may be stored until go(). pid() is 0 if
    // the server cannot be started.
    PrestartedServer(const ServerStart& start, StoredDescriptors& kept);
    ~PrestartedServer();  // kills a server that go() has not released
    PrestartedServer(const PrestartedServer&) = delete;
    PrestartedServer& operator=(const PrestartedServer&) = delete;

    // 0: there is no such server.
    pid_t pid() const { return pid_; }
    // Releases the StartGate. Returns the process id: the process is the server now.
    pid_t go();
    // The process has been reaped.
    void ended() { pid_ = 0; }

 private:
    pid_t pid_ = 0;
    std::optional<OwnedFd> start_pipe_;
};

}  // namespace gpunbd::server
