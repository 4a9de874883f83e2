// What a server and the one that is started in its place say to each other: one message a datagram,
// each with the protocol's version, so that two programs that do not understand each other find out
// before anything has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/nbd/connection_state.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::server {

inline constexpr std::uint16_t upgrade_version = 2;
inline constexpr std::size_t max_upgrade_message = std::size_t{64} * 1024;  // bytes

enum class MessageKind : std::uint16_t {
    // From the old server to the new one.
    start = 1,    // it may run its program
    listener,     // a listening socket, and its name
    device,       // the identity of a device that it will need
    calibration,  // of a device: Calibration
    import,       // a part of what is kept, to be imported while the old one serves: ImportPart
    prepare,      // that was all that it can have while the old one serves
    contents,     // a part of what is kept, and its name
    connection,   // a client's socket, and where to go on: ConnectionState but its bytes
    received,     // of the connection before it: more of its bytes
    all,          // that was all
    yours,        // the new one serves from now on
    // From the new one to the old one.
    cannot_run,  // the program: why
    prepared,    // what takes long is done
    ready,       // it has all, and only waits for `yours`
};

struct UpgradeMessage {
    MessageKind kind = MessageKind::start;
    std::vector<std::byte> body = {};
    OwnedFd descriptor{};  // of a listener, of contents, of a connection; no others have any
};

// Its datagram, without the descriptor.
std::vector<std::byte> encode_message(const UpgradeMessage& message);
// A text: what is wrong with it. Takes the descriptor in any case; -1: none came.
std::variant<UpgradeMessage, std::string> decode_message(std::span<const std::byte> datagram,
                                                         int descriptor);

std::vector<std::byte> text_body(std::string_view text);
std::string body_text(std::span<const std::byte> body);

struct Calibration {
    std::string device;  // DeviceInfo::identity
    std::string found;
    bool operator==(const Calibration&) const = default;
};
std::vector<std::byte> encode_calibration(const Calibration& calibration);
std::variant<Calibration, std::string> decode_calibration(std::span<const std::byte> body);

// A part of kept contents. The old server may give a slab back, and its number to another slab,
// until it stops serving: `entry` tells which slab it was.
struct ImportPart {
    std::string name;
    storage::SlabEntry entry;
    bool operator==(const ImportPart&) const = default;
};
std::vector<std::byte> encode_import(const ImportPart& part);
std::variant<ImportPart, std::string> decode_import(std::span<const std::byte> body);

// So many bytes of ConnectionState::received follow in other messages.
std::vector<std::byte> encode_connection(const ConnectionState& state);
struct DecodedConnection {
    ConnectionState state;
    std::uint32_t received_later = 0;  // bytes, at most ReceiveBuffer::capacity
};
std::variant<DecodedConnection, std::string> decode_connection(std::span<const std::byte> body);

}  // namespace gpunbd::server
