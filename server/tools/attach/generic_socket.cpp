#include "server/tools/attach/generic_socket.hpp"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace gpunbd::attach {

namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

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

GenericMessage::GenericMessage(std::uint16_t family, std::uint8_t command, std::uint8_t version) {
    nlmsghdr header{};
    header.nlmsg_type = family;
    header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    append(bytes_of(header));
    append(bytes_of(genlmsghdr{.cmd = command, .version = version, .reserved = 0}));
}

void GenericMessage::append(std::span<const std::byte> bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(&bytes_[at], bytes.data(), bytes.size());
}

void GenericMessage::pad() { bytes_.resize(NLMSG_ALIGN(bytes_.size())); }

void GenericMessage::attribute(int type, std::span<const std::byte> payload) {
    nlattr header{};
    header.nla_type = static_cast<std::uint16_t>(type);
    header.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + payload.size());
    append(bytes_of(header));
    append(payload);
    pad();
}

void GenericMessage::text(int type, std::string_view value) {
    std::vector<std::byte> with_end(value.size() + 1);
    if (!value.empty()) std::memcpy(with_end.data(), value.data(), value.size());
    attribute(type, with_end);
}

void GenericMessage::nested(int type, const std::function<void()>& content) {
    const std::size_t start = bytes_.size();
    attribute(type | NLA_F_NESTED, {});
    content();
    const auto length = static_cast<std::uint16_t>(bytes_.size() - start);
    std::memcpy(&bytes_[start] + offsetof(nlattr, nla_len), &length, sizeof length);
}

std::span<const std::byte> GenericMessage::finished(std::uint32_t sequence) {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence, sizeof sequence);
    return bytes_;
}

void each_attribute(Attributes from, const std::function<void(int, Attributes)>& take) {
    while (from.size() >= NLA_HDRLEN) {
        nlattr header{};
        std::memcpy(&header, from.data(), sizeof header);
        if (header.nla_len < NLA_HDRLEN || header.nla_len > from.size()) return;
        take(header.nla_type & NLA_TYPE_MASK,
             from.subspan(NLA_HDRLEN, header.nla_len - std::size_t{NLA_HDRLEN}));
        from = from.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), from.size()));
    }
}

std::optional<Attributes> find_attribute(Attributes from, int type) {
    std::optional<Attributes> found;
    each_attribute(from, [&](int each, Attributes payload) {
        if (each == type) found = payload;
    });
    return found;
}

Expected<GenericSocket, Failure> GenericSocket::open() {
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
