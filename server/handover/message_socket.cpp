#include "server/handover/message_socket.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace gpunbd::server {

namespace {

constexpr timeval peer_patience{.tv_sec = 5, .tv_usec = 0};  // for a peer that does not read
constexpr int message_buffer = 1 << 20;                      // bytes

[[noreturn]] void fail_with(const char* what, int error) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

bool wait_to_read(int fd, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        const int ready =
            ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
        if (ready >= 0 || errno != EINTR) return ready > 0;
    }
}

int descriptor_of(const msghdr& header) {
    const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    return fd;
}

}  // namespace

std::pair<OwnedFd, OwnedFd> MessageSocket::make_pair() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    for (const int end : ends) {
        ::setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &peer_patience, sizeof peer_patience);
        ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &message_buffer, sizeof message_buffer);
    }
    return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

void MessageSocket::send(const UpgradeMessage& message) const {
    std::vector<std::byte> bytes = encode_message(message);
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (const int fd = message.descriptor.get(); fd >= 0) {
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    while (::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) < 0) {
        if (errno == EAGAIN) throw std::runtime_error("it did not read its messages in time");
        if (errno == EPIPE || errno == ECONNRESET) throw std::runtime_error("it has ended");
        if (errno != EINTR) fail_with("cannot send to it", errno);
    }
}

bool MessageSocket::has_message() const {
    return wait_to_read(socket_.get(), std::chrono::milliseconds(0));
}

UpgradeMessage MessageSocket::receive(std::chrono::milliseconds limit) const {
    if (!wait_to_read(socket_.get(), limit)) throw std::runtime_error("it did not answer in time");
    // One byte more than the limit, to detect longer messages.
    std::vector<std::byte> bytes(max_upgrade_message + 1);
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t length = 0;
    bool reset =
        false;  // it ended without reading everything; reported once, before its last messages
    do {
        length = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    } while (length < 0 &&
             (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
    if (length == 0 || (length < 0 && errno == ECONNRESET)) {
        throw std::runtime_error("it has ended");
    }
    if (length < 0) fail_with("cannot receive from it", errno);
    UpgradeMessage message = value_or_throw(decode_message(
        std::span(bytes).first(static_cast<std::size_t>(length)), descriptor_of(header)));
    if ((header.msg_flags & MSG_CTRUNC) != 0)
        throw std::runtime_error("no descriptors are available");
    if (static_cast<std::size_t>(length) > max_upgrade_message) {
        throw std::runtime_error("a message is too long");
    }
    return message;
}

UpgradeMessage MessageSocket::expect(MessageKind kind, std::chrono::milliseconds limit) const {
    UpgradeMessage message = receive(limit);
    if (message.kind == kind) return message;
    if (message.kind == MessageKind::cannot_run) throw std::runtime_error(body_text(message.body));
    throw std::runtime_error(fmt::format("received a message of kind {} instead of kind {}",
                                         static_cast<int>(message.kind), static_cast<int>(kind)));
}

}  // namespace gpunbd::server
