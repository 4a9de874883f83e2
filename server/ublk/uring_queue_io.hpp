// The queue of a real device: an io_uring for its commands, and the character device for
// descriptors and payload.
#pragma once

#include <liburing.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>

#include "server/base/wait_memory.hpp"
#include "server/nbd/worker_context.hpp"
#include "server/ublk/request.hpp"

namespace gpunbd::server::ublk {

class UringQueueIo final : public QueueIo, private Scheduler::Source {
 public:
    // Created, used and destroyed on the worker's thread. `device`: the character device, which
    // outlives this object. Throws std::system_error.
    UringQueueIo(WorkerContext& worker, int device, std::uint16_t queue, std::uint16_t depth);
    ~UringQueueIo() override;
    UringQueueIo(const UringQueueIo&) = delete;
    UringQueueIo& operator=(const UringQueueIo&) = delete;

    // `queue` runs when there are completions that it waits for.
    void notify(Scheduler::Runnable& queue);

    void fetch(std::uint16_t tag) override { add(fetch_request, tag, 0); }
    void answer(std::uint16_t tag, std::int32_t result) override {
        add(commit_and_fetch, tag, result);
    }
    void submit() override;
    std::optional<Completion> next() override;
    void wait() override { waiting_ = true; }
    Descriptor descriptor(std::uint16_t tag) const override { return descriptors_[tag]; }
    ssize_t receive(std::uint16_t tag, std::span<const iovec> to, std::uint64_t offset) override;
    ssize_t send(std::uint16_t tag, std::span<const std::byte> from, std::uint64_t offset) override;

 private:
    // The eventfd that wakes the worker. The wait in progress shares it, because the handler of the
    // wait may run after this object has been destroyed.
    struct Event {
        explicit Event(boost::asio::io_context& io) : descriptor(io) {}
        boost::asio::posix::stream_descriptor descriptor;
        std::array<std::byte, 8> count{};
        bool closed = false;
    };

    bool handle() noexcept override;
    void set_wakes(bool wakes) noexcept override;
    static void read(const std::shared_ptr<Event>& event,
                     const std::shared_ptr<WaitMemory>& memory);
    void add(std::uint32_t operation, std::uint16_t tag, std::int32_t result);

    const int device_;
    const std::uint16_t queue_;
    std::size_t mapped_ = 0;  // bytes
    const Descriptor* descriptors_ = nullptr;
    io_uring ring_{};
    const std::shared_ptr<Event> event_;
    const std::shared_ptr<WaitMemory> wait_memory_ = std::make_shared<WaitMemory>();
    Scheduler& scheduler_;
    Scheduler::Runnable* waiter_ = nullptr;
    bool waiting_ = false;
};

}  // namespace gpunbd::server::ublk
