// What each command costs, for the limits that a request counts against.
#pragma once

#include <cstdint>

#include "protocol/gate.hpp"

namespace gpunbd::server {

// Work of a turn that takes as long as this many bytes of payload, at least.
inline constexpr std::int64_t request_work = 2 * 1024;

// Work within a connection's turn, as bytes of payload that take as long. A WRITE's payload counts
// when it is received.
std::int64_t turn_work(const protocol::Command& command, std::uint64_t page_size);
// The cost for a connection's limit on unanswered requests: payload, and work expressed as payload.
std::uint64_t in_flight_cost(const protocol::Command& command, std::uint64_t page_size);
// Payload for the rates of an export. TRIM and WRITE_ZEROES count as no bytes: otherwise one
// request could use up the rate of all others for hours.
std::uint64_t rate_cost(const protocol::Command& command);
// Bytes of memory that the request takes while it lives.
std::uint64_t memory_cost(const protocol::Command& command, std::uint64_t page_size);

}  // namespace gpunbd::server
