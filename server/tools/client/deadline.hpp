// Until when something has to be done. One holds for all of a handshake, so that a server that
// trickles is late as well.
#pragma once

#include <chrono>

namespace gpunbd::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Waits until poll(2) tells `events` (or an error) of the socket. False: the time is over first.
bool wait_for_socket(int fd, short events, Deadline until);

}  // namespace gpunbd::client
