#include "server/attach/byte_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace gpunbd::attach {

std::optional<Failure> ByteStream::wait_for(short event) const {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
        pollfd socket{.fd = fd_, .events = event, .revents = 0};
        const int ready = ::poll(&socket, 1, static_cast<int>(std::max<long>(left, 0)));
        if (ready > 0) return std::nullopt;
        if (ready == 0) return Failure{"the server does not answer"};
        if (errno != EINTR) return failure("poll", errno);
    }
}

std::optional<Failure> ByteStream::send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        if (auto failed = wait_for(POLLOUT)) return failed;
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno != EINTR && errno != EAGAIN) {
            return failure("sending", errno);
        }
    }
    return std::nullopt;
}

std::optional<Failure> ByteStream::receive(std::span<std::byte> into) const {
    while (!into.empty()) {
        if (auto failed = wait_for(POLLIN)) return failed;
        const ssize_t got = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
        if (got == 0) return Failure{"the server hung up during the handshake"};
        if (got > 0) {
            into = into.subspan(static_cast<std::size_t>(got));
        } else if (errno != EINTR && errno != EAGAIN) {
            return failure("receiving", errno);
        }
    }
    return std::nullopt;
}

}  // namespace gpunbd::attach
