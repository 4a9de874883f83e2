// What a queue uses of the kernel: commands to fetch and to answer requests, their descriptors, and
// their payload. Tests have a simulated one.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "server/ublk/kernel_interface.hpp"

namespace gpunbd::server::ublk {

class QueueIo {
 public:
    virtual ~QueueIo() = default;

    // Both take effect at the next submit(). Each tag has one command at a time: fetch() first,
    // then answer() after each request.
    virtual void fetch(std::uint16_t tag) = 0;
    virtual void answer(std::uint16_t tag, std::int32_t result) = 0;
    virtual void submit() = 0;

    struct Completion {
        std::uint16_t tag = 0;
        std::int32_t result = 0;  // 0: a request; otherwise the tag has no command any more
    };
    // Empty: none is available now.
    virtual std::optional<Completion> next() = 0;
    // Queue::run() is called once next() may have more.
    virtual void wait() = 0;

    virtual Descriptor descriptor(std::uint16_t tag) const = 0;
    // Copy payload of a request, from `offset` in it on. Return the number of bytes, which may be
    // fewer, or a negative number on failure.
    virtual ssize_t receive(std::uint16_t tag, std::span<const iovec> to, std::uint64_t offset) = 0;
    virtual ssize_t send(std::uint16_t tag, std::span<const std::byte> from,
                         std::uint64_t offset) = 0;
};

}  // namespace gpunbd::server::ublk
