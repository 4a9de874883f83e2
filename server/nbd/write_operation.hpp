#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "server/nbd/operation.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::server {

// A request without payload. It waits for its transfer only.
template <class OneTransfer>
class TransferOperation : public Operation {
 public:
    void abandon() final {
        give_up_answer();
        transfer_.abandon();
        answer_if_done();
    }

 protected:
    void answer_if_done() {
        if (!transfer_.done()) return;
        if (needs_reply(state())) answer_with(transfer_.status());
        context_->ended(*this);
    }

    OneTransfer transfer_;

 private:
    void moved() final {
        context_->wakeup().flush_soon();
        answer_if_done();
    }
};

// TRIM and WRITE_ZEROES.
class ZeroOperation : public TransferOperation<storage::ZeroTransfer> {
    void begin() override;
    void give_back_to(OperationPools& pools) override;
};

// FLUSH of a volume that is a cache.
class FlushOperation : public TransferOperation<storage::FlushTransfer> {
    void begin() override;
    void give_back_to(OperationPools& pools) override;
};

// WRITE: receives payload into memory that the volume lends, and acknowledges it once every copy
// has succeeded. While the volume fetches a page, a buffer receives the payload, so that the WRITE
// delays no other request of its connection.
class WriteOperation : public Operation {
 public:
    // For the next start(): the first `bytes` of the payload have been written by another process.
    void skip(std::uint64_t bytes) { skipped_ = bytes; }
    // Another process receives the rest of the payload. The received part is written, and only its
    // failure gets a reply. The operation may be destroyed when this returns.
    void hand_over();
    // Payload bytes that have not arrived.
    std::uint64_t missing() const { return missing_; }
    // Some of the payload is in a buffer and not in the volume. hand_over() has to wait.
    bool is_buffering() const { return written_ != buffered_; }
    // Where to receive the next of them. 0 pieces: no memory is available now.
    std::size_t lend(std::span<iovec> out);
    void received(std::size_t bytes);
    // Copies payload from the receive buffer. Returns how much was used.
    std::size_t take(std::span<const std::byte> payload);
    // The write has failed, so the rest of its payload is dropped.
    bool discards() {
        if (transfer_.status() != storage::Status::ok) [[unlikely]]
            discard();
        return state() == RequestState::discarding;
    }
    // Answers, now or when the last copy ends. The operation may be gone afterwards.
    void payload_complete() { answer_if_done(); }

    void abandon() override;

 private:
    void begin() override;
    void moved() override;
    void give_back_to(OperationPools& pools) override;
    void discard();
    void answer_if_done();
    // From now on a buffer receives the payload. False: there is none, now.
    bool take_buffer();
    // As much as the volume has memory for.
    void write_buffered();
    void drop_buffer();

    storage::WriteTransfer transfer_;
    std::uint64_t missing_ = 0;
    std::uint64_t skipped_ = 0;            // bytes
    std::unique_ptr<std::byte[]> buffer_;  // null: there is none
    std::size_t buffer_size_ = 0;          // bytes: all that was missing when it was made
    std::size_t buffered_ = 0;             // bytes in it
    std::size_t written_ = 0;              // of these, that the volume has
};

}  // namespace gpunbd::server
