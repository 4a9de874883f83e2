// The messages between a server and its successor, one per datagram. Each has the version of the
// protocol, so that incompatible programs detect this before anything changes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/base/expected.hpp"
#include "server/nbd/connection_state.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::server {

inline constexpr std::uint16_t upgrade_version = 3;
inline constexpr std::size_t max_upgrade_message = std::size_t{64} * 1024;  // bytes

enum class MessageKind : std::uint16_t {
    // From the old server to the new one.
    start = 1,    // execute the program
    listener,     // a listening socket and its name
    device,       // the identity of a device to open
    calibration,  // the calibration of a device: Calibration
    import,       // a part of kept contents to import while the old server serves: ImportPart
    prepare,      // the end of the messages before the pause
    contents,     // a part of kept contents and its name
    connection,   // the socket of a client and its ConnectionState without the received bytes
    received,     // received bytes of the preceding connection
    all,          // the end of the messages
    activate,     // the new server serves from now on
    // From the new one to the old one.
    cannot_run,  // exec failed, with the reason
    prepared,    // the devices are open and the imports done
    ready,       // all is taken over; waits for `activate`
    // From the old server to the new one, before `prepare`.
    run_time_export,  // the options of an export that was created at run time, and their name
    ublk_device,      // the id of a block device, in decimal
    // From the old server to the new one, with the contents.
    origin_lock,  // the lock on the origin of kept contents, and the name of the origin
};

struct UpgradeMessage {
    MessageKind kind = MessageKind::start;
    std::vector<std::byte> body = {};
    OwnedFd descriptor{};  // of a listener, of contents or of a connection
};

// The datagram, without the descriptor.
std::vector<std::byte> encode_message(const UpgradeMessage& message);
// Returns the problem as a text. Takes ownership of the descriptor in any case; -1: none.
Expected<UpgradeMessage> decode_message(std::span<const std::byte> datagram, int descriptor);

std::vector<std::byte> text_body(std::string_view text);
std::string body_text(std::span<const std::byte> body);

struct Calibration {
    std::string device;  // DeviceInfo::identity
    std::string found;
    bool operator==(const Calibration&) const = default;
};
std::vector<std::byte> encode_calibration(const Calibration& calibration);
Expected<Calibration> decode_calibration(std::span<const std::byte> body);

// A part of kept contents. Until the old server stops serving, it may free a slab and reuse its
// number; `entry` identifies the slab.
struct ImportPart {
    std::string name;
    storage::SlabEntry entry;
    bool operator==(const ImportPart&) const = default;
};
std::vector<std::byte> encode_import(const ImportPart& part);
Expected<ImportPart> decode_import(std::span<const std::byte> body);

// The bytes of ConnectionState::received that later messages contain.
std::vector<std::byte> encode_connection(const ConnectionState& state);
struct DecodedConnection {
    ConnectionState state;
    std::uint32_t received_later = 0;  // bytes, at most ReceiveBuffer::capacity
};
Expected<DecodedConnection> decode_connection(std::span<const std::byte> body);

// The connection between a server and its successor: a socket pair that carries each message as a
// datagram. All waiting is limited.
class MessageSocket {
 public:
    // Takes ownership of one end.
    explicit MessageSocket(OwnedFd socket) : socket_(std::move(socket)) {}
    // Creates two ends, both close-on-exec. Throws std::system_error.
    static std::pair<OwnedFd, OwnedFd> make_pair();

    int descriptor() const { return socket_.get(); }
    // Also true if the peer has ended: receive() does not wait then.
    bool has_message() const;

    // Both throw std::runtime_error with one line: the problem, that the peer has ended, or that it
    // did not answer in time.
    void send(const UpgradeMessage& message) const;
    UpgradeMessage receive(std::chrono::milliseconds limit) const;
    // As receive(), but throws for a message of another kind.
    UpgradeMessage expect(MessageKind kind, std::chrono::milliseconds limit) const;

 private:
    OwnedFd socket_;
};

}  // namespace gpunbd::server
