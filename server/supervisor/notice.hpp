#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// The socket whose address the supervised server gets in NOTIFY_SOCKET. Every process of the
// machine can send to it; the kernel reports the sender.
class NoticeSocket {
 public:
    // The address is in the abstract namespace, and the kernel chooses the name: no writable folder
    // is needed and no file remains. Throws std::system_error.
    NoticeSocket();

    int descriptor() const { return socket_.get(); }
    // The value of NOTIFY_SOCKET.
    const std::string& address() const { return address_; }

    // The next message. It is valid until the next call, or until its descriptors are taken. Null:
    // there is none. Descriptors that are not taken are closed.
    struct Datagram {
        pid_t sender = 0;
        std::string_view text;
        bool whole = true;  // false: too long, or too many descriptors for this process
        std::array<OwnedFd, NotifySocket::max_descriptors> descriptors{};
        std::size_t count = 0;

        OwnedFd take();  // the next descriptor
    };
    bool receive(Datagram& out);

 private:
    OwnedFd socket_;
    std::string address_;
    std::array<char, 4096> text_{};
};

// A pipe that notifies the supervisor of the exit of a server before the process is dead. The
// server holds the write end, the supervisor the read end. The kernel closes descriptors in
// ascending order, so this pipe, which is opened early, is closed long before the GPU driver has
// released the mappings of the process.
class ExitPipe {
 public:
    // If no descriptor is available, there is no pipe and no early notification.
    ExitPipe();

    // Sends the read end to the supervisor. A supervisor that does not support it, such as systemd,
    // closes it. Returns the problem, if any.
    std::optional<std::string> hand_over(const NotifySocket& supervisor);

 private:
    std::optional<OwnedFd> own_end_;
    std::optional<OwnedFd> supervisors_end_;
};

// An extension of this project: the message carries the read end of an ExitPipe.
inline constexpr std::string_view exit_pipe_line = "X_GPUNBD_LIFELINE=1";

// One message of a supervised process (sd_notify(3), sd_pid_notify_with_fds(3)), parsed.
struct Notice {
    bool store = false;          // FDSTORE=1
    bool remove = false;         // FDSTOREREMOVE=1
    bool ready = false;          // READY=1
    bool stopping = false;       // STOPPING=1
    bool exit_pipe = false;      // exit_pipe_line
    std::string_view name = {};  // FDNAME=
    pid_t main_pid = 0;          // MAINPID=; -1: not a process id
};

// `text` outlives the result. Unknown lines are ignored.
Notice read_notice(std::string_view text);

// The lines to forward to the supervisor of the keeper.
std::string to_pass_on(std::string_view text);

}  // namespace gpunbd::server
