// A fake supervisor with systemd's side of sd_notify(3): a datagram socket and the received
// messages.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include "server/supervisor/notify_socket.hpp"
#include "storage/base/owned_fd.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

// The way to the supervisor with this address.
inline NotifySocket way_to(const std::string& address) {
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
    auto socket = NotifySocket::from_environment();
    REQUIRE(socket);
    CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
    return std::move(*socket);
}

class PlayedSupervisor {
 public:
    struct Message {
        std::string text;
        std::vector<OwnedFd> descriptors;
    };

    // At a path, or in the abstract namespace with a name that the kernel chooses.
    explicit PlayedSupervisor(const std::string& path = {})
        : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), way(way_to(bind_to(path))) {}

    // The next message, if there is one. Does not wait.
    std::optional<Message> next() const {
        std::array<char, 4096> text{};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
        iovec into{.iov_base = text.data(), .iov_len = text.size()};
        msghdr header{};
        header.msg_iov = &into;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t length = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (length < 0) return std::nullopt;
        Message out;
        out.text.assign(text.data(), static_cast<std::size_t>(length));
        for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr;
             each = CMSG_NXTHDR(&header, each)) {
            if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
            const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i != count; ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
                out.descriptors.emplace_back(fd);
            }
        }
        return out;
    }

    // Its text; empty: there is none.
    std::string next_text() const {
        const auto message = next();
        return message ? message->text : "";
    }

 private:
    // Returns the address.
    std::string bind_to(const std::string& path) const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        const socklen_t length = path.empty() ? sizeof address.sun_family : sizeof address;
        REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
        if (!path.empty()) return path;
        socklen_t bound = sizeof address;
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bound);
        return "@" + std::string(address.sun_path + 1, bound - offsetof(sockaddr_un, sun_path) - 1);
    }

    OwnedFd socket_;

 public:
    const NotifySocket way;
};

// A supervisor at a path, which starts late.
struct LateSupervisor {
    void start() { socket.emplace(path); }

    const gpunbd::test::TemporaryFolder folder;
    const std::string path = folder.path("notify");
    const NotifySocket way = way_to(path);
    std::optional<PlayedSupervisor> socket;
};

}  // namespace gpunbd::server::test
