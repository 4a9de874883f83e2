// A generic netlink socket: for requests with replies, or for the events of a multicast group.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "server/tools/attach/attributes.hpp"
#include "server/tools/client/failure.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::attach {

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
    static Or<GenericSocket> open();

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
