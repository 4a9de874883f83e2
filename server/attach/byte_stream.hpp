// Whole messages over a socket, until a deadline. The socket itself stays without time-outs: those
// would be the kernel's, once it has it.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

#include "server/attach/failure.hpp"

namespace gpunbd::attach {

class ByteStream {
 public:
    using Clock = std::chrono::steady_clock;

    ByteStream(int fd, Clock::time_point deadline) : fd_(fd), deadline_(deadline) {}

    // Nothing, where all has been sent or received.
    std::optional<Failure> send(std::span<const std::byte> bytes) const;
    std::optional<Failure> receive(std::span<std::byte> into) const;

 private:
    std::optional<Failure> wait_for(short event) const;

    int fd_;
    Clock::time_point deadline_;
};

}  // namespace gpunbd::attach
