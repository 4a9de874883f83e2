// The process that replaces this one. It runs the program that is now at this program's path, with
// the same arguments.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/handover/message.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

struct SuccessorStart {
    std::string program;
    std::vector<std::string> arguments;                // without the program's name
    std::string notify_address;                        // NOTIFY_SOCKET
    std::optional<std::uint64_t> capacity;             // FDSTORE
    std::optional<std::chrono::microseconds> watched;  // WATCHDOG_USEC
};

class Successor {
 public:
    // The process is reparented to the supervisor or to process 1 before exec, and has the same
    // parent-death signal as this process. Throws std::runtime_error.
    explicit Successor(const SuccessorStart& start);
    // Kills the process, unless detach() was called.
    ~Successor();
    Successor(const Successor&) = delete;
    Successor& operator=(const Successor&) = delete;

    const MessageSocket& socket() const { return *socket_; }
    pid_t pid() const { return pid_; }
    void detach();

 private:
    std::optional<MessageSocket> socket_;
    pid_t pid_ = 0;
    OwnedFd handle_;  // a pidfd, because the process id could be reused
};

// The successor's end of the socket.
inline constexpr const char* successor_variable = "GPUNBD_SUCCESSOR";

}  // namespace gpunbd::server
