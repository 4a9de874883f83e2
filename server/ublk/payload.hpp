// Copies payload between the kernel's requests and lent memory. The kernel may refuse to pin a
// mapping of device memory; that payload passes through a buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "server/ublk/queue_io.hpp"

namespace gpunbd::server::ublk {

class Payload {
 public:
    explicit Payload(QueueIo& io) : io_(io) {}

    // Stores the next bytes of a WRITE in lent memory. Returns their number; 0: failure.
    std::size_t receive(std::uint16_t tag, std::span<const iovec> lent, std::uint64_t offset);
    // Answers a part of a READ. `data`: null: zeroes.
    bool send(std::uint16_t tag, const std::byte* data, std::size_t length, std::uint64_t offset);

 private:
    static constexpr std::size_t buffer_size = 64 * 1024;

    bool send_all(std::uint16_t tag, std::span<const std::byte> data, std::uint64_t offset);
    bool send_buffered(std::uint16_t tag, std::span<const std::byte> data, std::uint64_t offset);

    QueueIo& io_;
    bool receives_directly_ = true;
    bool sends_directly_ = true;
    alignas(4096) std::array<std::byte, buffer_size> buffer_;
};

}  // namespace gpunbd::server::ublk
