// What each command costs, for the limits that a request counts against.
#pragma once

#include <cstdint>

#include "protocol/gate.hpp"

namespace gpunbd::server {

// Work of a turn that takes as long as this many bytes of payload, at least.
inline constexpr std::int64_t request_work = 2 * 1024;

struct CommandCost {
    // Work within a connection's turn, as bytes of payload that take as long. A WRITE's payload
    // counts when it is received.
    std::int64_t turn = request_work;
    // For a connection's limit on unanswered requests: payload, and work expressed as payload.
    std::uint64_t in_flight = 0;
    std::uint64_t memory = 0;  // bytes that the request takes while it lives
};

CommandCost cost_of(const protocol::Command& command, std::uint64_t page_size);

// Payload for the rates of an export. TRIM and WRITE_ZEROES count as no bytes: otherwise one
// request could use up the rate of all others for hours.
std::uint64_t rate_cost(const protocol::Command& command);

}  // namespace gpunbd::server
