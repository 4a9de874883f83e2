// The socket whose address the supervised server gets in NOTIFY_SOCKET. Every process of the
// machine can send to it; the kernel reports the sender.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
