// WRITE: payload goes where the volume lends memory for it, and is acknowledged only once every
// copy is known to have succeeded.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "server/operations/operation.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::server {

class WriteOperation : public Operation {
 public:
    // For the next start(): so many bytes of the payload are in their place already.
    void continues_behind(std::uint64_t bytes) { there_already_ = bytes; }
    // No more of the payload comes here: what has come is written, and unless that fails, nothing
    // is answered. The operation may be gone after.
    void cut_short();
    // Payload bytes that have not come yet.
    std::uint64_t missing() const { return missing_; }
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

    void abandon() override;
    void return_to(OperationPools& pools) override;

 private:
    void begin() override;
    void moved() override;
    void answer_if_done();
    void answer();

    storage::WriteTransfer transfer_;
    std::uint64_t missing_ = 0;
    std::uint64_t there_already_ = 0;  // bytes
    bool given_up_ = false;
    bool cut_short_ = false;
};

}  // namespace gpunbd::server
