#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

// Netlink attributes: builds a request and parses a reply. Only this file handles lengths and
// padding.
class GenericMessage {
 public:
    GenericMessage(std::uint16_t family, std::uint8_t command, std::uint8_t version);

    template <typename T>
    void number(int type, T value) {
        static_assert(std::is_unsigned_v<T>);
        attribute(type, std::as_bytes(std::span(&value, 1)));
    }
    void text(int type, std::string_view value);
    void nested(int type, const std::function<void()>& content);

    // Completes the message with its sequence number and requests an acknowledgement.
    std::span<const std::byte> finished(std::uint32_t sequence);

 private:
    void attribute(int type, std::span<const std::byte> payload);
    void append(std::span<const std::byte> bytes);
    void pad();

    std::vector<std::byte> bytes_;
};

using Attributes = std::span<const std::byte>;

// Calls `take` with the type and payload of each attribute. Stops at an attribute whose length
// exceeds the message.
void each_attribute(Attributes from, const std::function<void(int, Attributes)>& take);

std::optional<Attributes> find_attribute(Attributes from, int type);

template <typename T>
std::optional<T> find_number(Attributes from, int type) {
    const auto found = find_attribute(from, type);
    if (!found || found->size() < sizeof(T)) return std::nullopt;
    T value{};
    std::memcpy(&value, found->data(), sizeof value);
    return value;
}

// A generic netlink socket: for requests with replies, or for the events of a multicast group.
struct GenericReply {
    int error = 0;                      // an errno; 0: success
    std::vector<std::byte> attributes;  // of the message before the acknowledgement, if any
};

struct GenericEvent {
    std::uint8_t command = 0;
    std::vector<std::byte> attributes;
};
struct EventsLost {};  // the receive buffer has overflowed

class GenericSocket {
 public:
    static Expected<GenericSocket, Failure> open();

    GenericReply request(GenericMessage message);
    int join(std::uint32_t group);  // an errno, or 0

    // The next pending event of the group; does not block.
    std::optional<std::variant<GenericEvent, EventsLost>> next_event();
    int fd() const { return fd_.get(); }

 private:
    explicit GenericSocket(OwnedFd fd) : fd_(std::move(fd)) {}

    OwnedFd fd_;
    std::uint32_t sequence_ = 0;
};

}  // namespace gpunbd::attach
