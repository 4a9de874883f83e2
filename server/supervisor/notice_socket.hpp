// The socket that a supervised server finds in NOTIFY_SOCKET. Every process of the machine can send
// there; the kernel tells which it was.
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
    // In the abstract namespace, under a name that the kernel chooses: it needs no folder that can
    // be written to, and nothing is left of it. Throws std::system_error.
    NoticeSocket();

    int descriptor() const { return socket_.get(); }
    // For NOTIFY_SOCKET.
    const std::string& address() const { return address_; }

    // What came next; valid until the next call, or until the descriptors are taken. Null: nothing
    // is there. Those that nobody takes are closed.
    struct Datagram {
        pid_t sender = 0;
        std::string_view text;
        bool whole =
            true;  // false: it was too long, or this process has no room for its descriptors
        std::array<OwnedFd, NotifySocket::max_descriptors> descriptors{};
        std::size_t count = 0;

        OwnedFd take();  // the next one
    };
    bool receive(Datagram& out);

 private:
    OwnedFd socket_;
    std::string address_;
    std::array<char, 4096> text_{};
};

}  // namespace gpunbd::server
