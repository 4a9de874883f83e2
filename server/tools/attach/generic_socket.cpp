#include "server/tools/attach/generic_socket.hpp"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace gpunbd::attach {
namespace {

using Received = std::span<const std::byte>;

// Removes the first message from the received bytes; nullopt if no complete message is left.
std::optional<std::pair<nlmsghdr, Received>> cut_message(Received& from) {
    nlmsghdr header{};
    if (from.size() < sizeof header) return std::nullopt;
    std::memcpy(&header, from.data(), sizeof header);
    if (header.nlmsg_len < NLMSG_HDRLEN || header.nlmsg_len > from.size()) return std::nullopt;
    const Received body = from.subspan(NLMSG_HDRLEN, header.nlmsg_len - std::size_t{NLMSG_HDRLEN});
    from = from.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), from.size()));
    return std::pair(header, body);
}

std::vector<std::byte> attributes_in(Received body) {
    const Received rest = body.subspan(std::min<std::size_t>(GENL_HDRLEN, body.size()));
    return {rest.begin(), rest.end()};
}

}  // namespace

Or<GenericSocket> GenericSocket::open() {
    OwnedFd made(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
    if (made.get() < 0) return failure("netlink", errno);
    sockaddr_nl own{};
    own.nl_family = AF_NETLINK;
    if (::bind(made.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) {
        return failure("netlink", errno);
    }
    return GenericSocket(std::move(made));
}

int GenericSocket::join(std::uint32_t group) {
    const int joined =
        ::setsockopt(fd_.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group);
    return joined == 0 ? 0 : errno;
}

GenericReply GenericSocket::request(GenericMessage message) {
    const auto bytes = message.finished(++sequence_);
    if (::send(fd_.get(), bytes.data(), bytes.size(), 0) < 0)
        return {.error = errno, .attributes = {}};
    GenericReply reply;
    for (;;) {
        alignas(nlmsghdr) std::array<std::byte, 16384> buffer;
        const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return {.error = got < 0 ? errno : EPROTO, .attributes = {}};
        Received left(buffer.data(), static_cast<std::size_t>(got));
        while (const auto message_cut = cut_message(left)) {
            const auto& [header, body] = *message_cut;
            if (header.nlmsg_seq != sequence_) continue;
            if (header.nlmsg_type != NLMSG_ERROR) {
                reply.attributes = attributes_in(body);
                continue;
            }
            int error = -EPROTO;
            if (body.size() >= sizeof error) std::memcpy(&error, body.data(), sizeof error);
            reply.error = -error;
            return reply;
        }
    }
}

std::optional<std::variant<GenericEvent, EventsLost>> GenericSocket::next_event() {
    alignas(nlmsghdr) std::array<std::byte, 4096> buffer;
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == ENOBUFS) return EventsLost{};
    if (got <= 0) return std::nullopt;
    Received left(buffer.data(), static_cast<std::size_t>(got));
    const auto message = cut_message(left);  // the kernel sends one event per datagram
    GenericEvent event;
    if (message && message->second.size() >= GENL_HDRLEN) {
        event.command = std::to_integer<std::uint8_t>(message->second[offsetof(genlmsghdr, cmd)]);
        event.attributes = attributes_in(message->second);
    }
    return event;
}

}  // namespace gpunbd::attach
