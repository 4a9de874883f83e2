// The process that is to serve in place of this one: the program that lies where this one was
// started from, with the same arguments, beside it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/handover/message_socket.hpp"
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
    // Its parent is whoever takes orphans, the supervisor or process 1, before its program runs; it
    // ends with that one, if this one does. Throws std::runtime_error.
    explicit Successor(const SuccessorStart& start);
    // It ends, unless it was let go.
    ~Successor();
    Successor(const Successor&) = delete;
    Successor& operator=(const Successor&) = delete;

    const MessageSocket& socket() const { return *socket_; }
    pid_t pid() const { return pid_; }
    void let_go();

 private:
    std::optional<MessageSocket> socket_;
    pid_t pid_ = 0;
    OwnedFd handle_;  // of the process: its number may come to be another's
};

// Where the successor finds its end of the socket.
inline constexpr const char* successor_variable = "GPUNBD_SUCCESSOR";

}  // namespace gpunbd::server
