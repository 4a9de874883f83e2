#include "server/supervisor/notify_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "config/quote.hpp"
#include "server/base/process.hpp"

namespace gpunbd::server {

namespace {

constexpr timeval send_patience{.tv_sec = 5, .tv_usec = 0};

std::string failure(std::string_view what, const std::string& address, int error) {
    return fmt::format("the supervisor at NOTIFY_SOCKET={} {}: {}", config::in_quotes(address),
                       what, std::strerror(error));
}

// A path, or '@' and a name in the abstract namespace. Returns 0 if it is neither.
socklen_t address_of(const std::string& text, sockaddr_un& out) {
    out.sun_family = AF_UNIX;
    const bool abstract = text.starts_with('@');
    // A path needs a terminating zero.
    const std::size_t room = sizeof out.sun_path - (abstract ? 0 : 1);
    if ((!abstract && !text.starts_with('/')) || text.size() < 2 || text.size() > room) return 0;
    std::memcpy(out.sun_path, text.data(), text.size());
    if (abstract) out.sun_path[0] = 0;
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() +
                                  (abstract ? 0 : 1));
}

}  // namespace

std::optional<NotifySocket> NotifySocket::from_environment() {
    auto address = take_variable("NOTIFY_SOCKET");
    if (!address || address->empty()) return std::nullopt;
    OwnedFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &send_patience, sizeof send_patience);
    return NotifySocket(std::move(*address), std::move(socket));
}

std::optional<std::string> NotifySocket::send(std::string_view message,
                                              std::span<const int> descriptors) const {
    sockaddr_un address{};
    const socklen_t length = address_of(address_, address);
    if (length == 0) {
        return fmt::format("NOTIFY_SOCKET: {} is neither a path nor a name that begins with @",
                           config::in_quotes(address_));
    }
    if (descriptors.size() > max_descriptors) {
        return fmt::format("{} descriptors do not fit into one message", descriptors.size());
    }
    iovec text{.iov_base = const_cast<char*>(message.data()), .iov_len = message.size()};
    msghdr header{};
    header.msg_name = &address;
    header.msg_namelen = length;
    header.msg_iov = &text;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(max_descriptors * sizeof(int))> control{};
    if (!descriptors.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
    }
    while (::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) < 0) {
        if (errno == EAGAIN) return failure("does not read its messages", address_, ETIMEDOUT);
        if (errno != EINTR) return failure("cannot be notified", address_, errno);
    }
    return std::nullopt;
}

std::optional<std::string> NotifySocket::barrier(std::chrono::milliseconds timeout) const {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return fmt::format("cannot create a pipe: {}", std::strerror(errno));
    }
    const OwnedFd ours(ends[0]);
    {
        const OwnedFd theirs(ends[1]);
        const std::array<int, 1> sent{theirs.get()};
        if (auto wrong = send("BARRIER=1", sent)) return wrong;
    }
    // The supervisor closes the other end when it handles this message.
    const auto end = std::chrono::steady_clock::now() + timeout;
    pollfd wait{.fd = ours.get(), .events = 0, .revents = 0};
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        const int ready =
            ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
        if (ready > 0) return std::nullopt;
        if (ready == 0) return failure("does not answer", address_, ETIMEDOUT);
        if (errno != EINTR) return failure("cannot be polled", address_, errno);
    }
}

std::string reloading_message() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return fmt::format("RELOADING=1\nMONOTONIC_USEC={}",
                       static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000);
}

}  // namespace gpunbd::server
