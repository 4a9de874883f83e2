// WRITE: payload goes where the volume lends memory for it, and is acknowledged only once every
// copy is known to have succeeded.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "server/operation.hpp"
#include "storage/write_transfer.hpp"

namespace gpunbd::server {

class WriteOperation final : public Operation {
 public:
    void start(Session& session, const protocol::Command& command);

    // Payload bytes that have not come yet.
    std::uint32_t missing() const { return missing_; }
    // Where to receive the next of them; 0 pieces: nothing is lent now.
    std::size_t lend(std::span<iovec> out);
    void received(std::size_t bytes);
    // Copies payload that lies in the receive buffer; returns how much was used.
    std::size_t take(std::span<const std::byte> payload);
    // The write has failed already: the rest of its payload is thrown away.
    bool discards();
    // Once missing() is 0: answers, now or when the last copy ends. The operation may be gone
    // after.
    void payload_complete() { answer_if_done(); }

    void transfer_moved(storage::Transfer& transfer) override;
    void abandon() override;

 private:
    void answer_if_done();

    storage::WriteTransfer transfer_;
    std::uint32_t missing_ = 0;
    bool given_up_ = false;
};

}  // namespace gpunbd::server
