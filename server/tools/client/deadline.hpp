// A point in time by which an operation must complete. One deadline covers the whole handshake, so
// a server that sends single bytes cannot prolong it.
#pragma once

#include <chrono>

namespace gpunbd::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Waits until poll(2) reports `events` (or an error) for the socket. Returns false at the deadline.
bool wait_for_socket(int fd, short events, Deadline until);

}  // namespace gpunbd::client
