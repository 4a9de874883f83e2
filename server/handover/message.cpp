#include "server/handover/message.hpp"

#include <fmt/format.h>

#include <bit>

#include "protocol/bytes.hpp"
#include "protocol/gate.hpp"
#include "server/handover/fields.hpp"
#include "server/net/transport/receive_buffer.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint32_t upgrade_magic = 0x67707570;  // "gpup"
constexpr std::size_t message_head = sizeof(upgrade_magic) + 2 * sizeof(std::uint16_t);

bool has_descriptor(MessageKind kind) {
    return kind == MessageKind::listener || kind == MessageKind::import ||
           kind == MessageKind::contents || kind == MessageKind::connection ||
           kind == MessageKind::run_time_export;
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
        kind > static_cast<std::uint16_t>(MessageKind::ublk_device)) {
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
    state.discarded = in.number<std::uint64_t>();
    state.requests = in.number<std::uint64_t>();
    state.read = in.number<std::uint64_t>();
    state.written = in.number<std::uint64_t>();
    state.errors = in.number<std::uint64_t>();
    state.milliseconds = in.number<std::uint64_t>();
    out.received_later = in.number<std::uint32_t>();
    if (!in.complete()) return "the state of a connection has a wrong length";
    if (headers > static_cast<std::uint8_t>(protocol::Headers::extended) || read_only > 1 ||
        contexts >> protocol::known_contexts != 0 || !std::has_single_bit(info.minimum_block) ||
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

}  // namespace gpunbd::server
