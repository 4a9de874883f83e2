#include "server/handover/message.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/gate.hpp"
#include "server/net/transport/receive_buffer.hpp"

namespace gpunbd::server {

namespace {

// Reads and writes consecutive numbers and texts in the bodies of messages between servers. Reading
// beyond the end gives zeroes and makes complete() false.
class FieldWriter {
 public:
    void number(std::unsigned_integral auto value) { protocol::append_be(bytes_, value); }
    void text(std::string_view text) {
        number(static_cast<std::uint32_t>(text.size()));
        const auto bytes = std::as_bytes(std::span(text));
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> take() { return std::move(bytes_); }

 private:
    std::vector<std::byte> bytes_;
};

class FieldReader {
 public:
    explicit FieldReader(std::span<const std::byte> bytes) : left_(bytes) {}

    template <std::unsigned_integral T>
    T number() {
        const auto bytes = take(sizeof(T));
        return bytes.empty() ? T{0} : protocol::load_be<T>(bytes.data());
    }
    std::string text() {
        const auto bytes = take(number<std::uint32_t>());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    // Returns true if all fields were present and nothing follows.
    bool complete() const { return whole_ && left_.empty(); }

 private:
    std::span<const std::byte> take(std::size_t size) {
        if (!whole_ || size > left_.size()) {
            whole_ = false;
            return {};
        }
        const auto taken = left_.first(size);
        left_ = left_.subspan(size);
        return taken;
    }

    std::span<const std::byte> left_;
    bool whole_ = true;
};

constexpr std::uint32_t upgrade_magic = 0x67707570;  // "gpup"
constexpr std::size_t message_head = sizeof(upgrade_magic) + 2 * sizeof(std::uint16_t);

bool has_descriptor(MessageKind kind) {
    return kind == MessageKind::listener || kind == MessageKind::import ||
           kind == MessageKind::contents || kind == MessageKind::connection ||
           kind == MessageKind::run_time_export || kind == MessageKind::origin_lock;
}

bool has_body(MessageKind kind) {
    switch (kind) {
        case MessageKind::start:
        case MessageKind::prepare:
        case MessageKind::all:
        case MessageKind::activate:
        case MessageKind::prepared:
        case MessageKind::ready:
            return false;
        default:
            return true;
    }
}

bool possible(const ConnectionState& state) {
    const auto& half = state.half_write;
    const protocol::ExportInfo& info = state.negotiated.export_info;
    if (half.length == 0 && !(half == ConnectionState::HalfWrite{})) return false;
    if (half.length != 0 && half.arrived >= half.length) return false;
    if (!protocol::lies_in(info.size, half.offset, half.length)) return false;
    return half.length == 0 || state.discarded == 0;
}

constexpr std::chrono::seconds peer_patience{5};  // for a peer that does not read
constexpr int message_buffer = 1 << 20;           // bytes

[[noreturn]] void fail_with(const char* what, int error) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

bool wait_for(int fd, short events, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    pollfd wait{.fd = fd, .events = events, .revents = 0};
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

std::vector<std::byte> encode_message(const UpgradeMessage& message) {
    std::vector<std::byte> out;
    protocol::append_be(out, upgrade_magic);
    protocol::append_be(out, upgrade_version);
    protocol::append_be(out, static_cast<std::uint16_t>(message.kind));
    out.insert(out.end(), message.body.begin(), message.body.end());
    return out;
}

Expected<UpgradeMessage> decode_message(std::span<const std::byte> datagram, int descriptor) {
    UpgradeMessage message{.descriptor = OwnedFd(descriptor)};
    if (datagram.size() < message_head) return "a message is too short";
    if (protocol::load_be<std::uint32_t>(datagram.data()) != upgrade_magic) {
        return "the peer is not a gpunbd server";
    }
    const auto version = protocol::load_be<std::uint16_t>(datagram.data() + 4);
    if (version != upgrade_version) {
        return fmt::format("it speaks version {}, but this gpunbd speaks version {}", version,
                           upgrade_version);
    }
    const auto kind = protocol::load_be<std::uint16_t>(datagram.data() + 6);
    if (kind < static_cast<std::uint16_t>(MessageKind::start) ||
        kind > static_cast<std::uint16_t>(MessageKind::origin_lock)) {
        return fmt::format("a message has the unknown kind {}", kind);
    }
    message.kind = static_cast<MessageKind>(kind);
    const auto body = datagram.subspan(message_head);
    if (has_body(message.kind) == body.empty()) {
        return fmt::format("a message of kind {} is too {}", kind, body.empty() ? "short" : "long");
    }
    if (has_descriptor(message.kind) != (descriptor >= 0)) {
        return fmt::format("a message of kind {} has {} descriptor", kind,
                           descriptor >= 0 ? "a" : "no");
    }
    message.body.assign(body.begin(), body.end());
    return message;
}

std::vector<std::byte> text_body(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::string body_text(std::span<const std::byte> body) {
    return {reinterpret_cast<const char*>(body.data()), body.size()};
}

std::vector<std::byte> encode_calibration(const Calibration& calibration) {
    FieldWriter out;
    out.text(calibration.device);
    out.text(calibration.found);
    return out.take();
}

Expected<Calibration> decode_calibration(std::span<const std::byte> body) {
    FieldReader in(body);
    Calibration calibration{.device = in.text(), .found = in.text()};
    if (!in.complete()) {
        return {boost::system::in_place_error, "a calibration has a wrong length"};
    }
    return calibration;
}

std::vector<std::byte> encode_import(const ImportPart& part) {
    FieldWriter out;
    out.text(part.name);
    out.number(part.entry.word());
    return out.take();
}

Expected<ImportPart> decode_import(std::span<const std::byte> body) {
    FieldReader in(body);
    ImportPart part{.name = in.text(),
                    .entry = storage::SlabEntry::of_word(in.number<std::uint64_t>())};
    if (!in.complete()) {
        return {boost::system::in_place_error, "a part of kept contents has a wrong length"};
    }
    return part;
}

std::vector<std::byte> encode_connection(const ConnectionState& state) {
    FieldWriter out;
    const protocol::ExportInfo& info = state.negotiated.export_info;
    out.text(state.listener);
    out.number(static_cast<std::uint8_t>(state.negotiated.headers));
    std::uint8_t contexts = 0;
    for (const protocol::MetaContext each : protocol::all_contexts) {
        if (!state.negotiated.contexts.has(each)) continue;
        contexts = static_cast<std::uint8_t>(contexts | 1U << protocol::id_of(each));
    }
    out.number(contexts);
    out.text(info.name);
    out.number(info.size);
    out.number(static_cast<std::uint8_t>(info.read_only ? 1 : 0));
    out.number(info.minimum_block);
    out.number(info.preferred_block);
    out.number(info.maximum_payload);
    out.number(state.half_write.cookie);
    out.number(state.half_write.offset);
    out.number(state.half_write.length);
    out.number(state.half_write.arrived);
    out.number(static_cast<std::uint8_t>(state.half_write.fua ? 1 : 0));
    out.number(state.discarded);
    out.number(state.requests);
    out.number(state.read);
    out.number(state.written);
    out.number(state.errors);
    out.number(state.milliseconds);
    out.number(static_cast<std::uint32_t>(state.received.size()));
    return out.take();
}

Expected<DecodedConnection> decode_connection(std::span<const std::byte> body) {
    FieldReader in(body);
    DecodedConnection out;
    ConnectionState& state = out.state;
    protocol::ExportInfo& info = state.negotiated.export_info;
    state.listener = in.text();
    const auto headers = in.number<std::uint8_t>();
    const auto contexts = in.number<std::uint8_t>();
    info.name = in.text();
    info.size = in.number<std::uint64_t>();
    const auto read_only = in.number<std::uint8_t>();
    info.read_only = read_only != 0;
    info.minimum_block = in.number<std::uint32_t>();
    info.preferred_block = in.number<std::uint32_t>();
    info.maximum_payload = in.number<std::uint32_t>();
    state.half_write.cookie = in.number<std::uint64_t>();
    state.half_write.offset = in.number<std::uint64_t>();
    state.half_write.length = in.number<std::uint64_t>();
    state.half_write.arrived = in.number<std::uint64_t>();
    const auto fua = in.number<std::uint8_t>();
    state.half_write.fua = fua != 0;
    state.discarded = in.number<std::uint64_t>();
    state.requests = in.number<std::uint64_t>();
    state.read = in.number<std::uint64_t>();
    state.written = in.number<std::uint64_t>();
    state.errors = in.number<std::uint64_t>();
    state.milliseconds = in.number<std::uint64_t>();
    out.received_later = in.number<std::uint32_t>();
    if (!in.complete()) return "the state of a connection has a wrong length";
    if (headers > static_cast<std::uint8_t>(protocol::Headers::extended) || read_only > 1 ||
        fua > 1 || contexts >> protocol::known_contexts != 0 ||
        !std::has_single_bit(info.minimum_block) ||
        (contexts != 0 && headers == static_cast<std::uint8_t>(protocol::Headers::simple)) ||
        out.received_later > ReceiveBuffer::capacity || !possible(state)) {
        return "the state of a connection is inconsistent";
    }
    state.negotiated.headers = static_cast<protocol::Headers>(headers);
    for (const protocol::MetaContext each : protocol::all_contexts) {
        if ((contexts >> protocol::id_of(each) & 1) != 0) state.negotiated.contexts.add(each);
    }
    return out;
}

std::pair<OwnedFd, OwnedFd> MessageSocket::make_pair() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    for (const int end : ends) {
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
        if (errno == EAGAIN) {  // Asio has made the socket non-blocking
            if (wait_for(socket_.get(), POLLOUT, peer_patience)) continue;
            throw std::runtime_error("it did not read its messages in time");
        }
        if (errno == EPIPE || errno == ECONNRESET) throw std::runtime_error("it has ended");
        if (errno != EINTR) fail_with("cannot send to it", errno);
    }
}

bool MessageSocket::has_message() const {
    return wait_for(socket_.get(), POLLIN, std::chrono::milliseconds(0));
}

UpgradeMessage MessageSocket::receive(std::chrono::milliseconds limit) const {
    if (!wait_for(socket_.get(), POLLIN, limit))
        throw std::runtime_error("it did not answer in time");
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
