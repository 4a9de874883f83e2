#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/gate.hpp"
#include "server/nbd/command_cost.hpp"
#include "server/ublk/kernel_interface.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/transfers/read_transfer.hpp"
#include "storage/transfers/write_transfer.hpp"

namespace gpunbd::server::ublk {

// What a queue uses of the kernel: commands to fetch and to answer requests, their descriptors, and
// their payload. Tests have a simulated one.
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

// Copies payload between the kernel's requests and lent memory. The kernel may refuse to pin a
// mapping of device memory; that payload passes through a buffer.
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

class Request;

// One request of the kernel on its way through the volume. Each tag of a queue has one, which is
// reused.
class RequestOwner {
 public:
    // Nothing of the request is in flight. Called for each start(), possibly within it.
    virtual void ended(Request& request, storage::Status status) = 0;

 protected:
    ~RequestOwner() = default;
};

class Request final : public storage::TransferOwner {
 public:
    // All outlive the request.
    struct Context {
        const storage::TransferContext& transfer;
        Payload& payload;
        RequestOwner& owner;
    };
    Request(const Context& context, std::uint16_t tag) : context_(context), tag_(tag) {}

    void prepare(const protocol::Command& command, const CommandCost& cost) {
        GPUNBD_ASSERT(command.type != protocol::CommandType::disc &&
                          command.type != protocol::CommandType::cache &&
                          command.type != protocol::CommandType::block_status,
                      "the kernel sends READ, WRITE, TRIM, WRITE_ZEROES and FLUSH only");
        GPUNBD_ASSERT(!running_, "the request of a tag is over before the next one");
        command_ = command;
        cost_ = cost;
    }
    void start();

    std::uint16_t tag() const { return tag_; }
    const protocol::Command& command() const { return command_; }
    const CommandCost& cost() const { return cost_; }

    storage::TraceClock::time_point received_at;

 private:
    void transfer_moved(storage::Transfer&) override;
    void begin();
    void advance();
    void read();
    void write();
    void zero();
    void flush();
    bool flushes_cache() const { return context_.transfer.volume.cache() != nullptr; }
    void end(storage::Status status) {
        GPUNBD_ASSERT(running_, "a request ends once for each start");
        running_ = false;
        context_.owner.ended(*this, status);
    }
    // The first failure is the result.
    void fail(storage::Status status) {
        if (status_ == storage::Status::ok) status_ = status;
    }

    const Context context_;
    const std::uint16_t tag_;
    protocol::Command command_;
    CommandCost cost_;
    bool running_ = false;  // from start() to RequestOwner::ended()
    storage::Status status_ = storage::Status::ok;
    std::uint64_t received_ = 0;  // bytes of a WRITE
    storage::ReadTransfer read_;
    storage::WriteTransfer write_;
    storage::ZeroTransfer zero_;
    storage::FlushTransfer flush_;
};

}  // namespace gpunbd::server::ublk
