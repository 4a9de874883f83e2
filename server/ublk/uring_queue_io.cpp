#include "server/ublk/uring_queue_io.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "storage/assertions/assert.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server::ublk {

namespace {

// The mapping of a queue begins at a multiple of the longest one.
std::size_t mapping_length(std::size_t depth) {
    const auto unit = static_cast<std::size_t>(::getpagesize());
    return (depth * sizeof(Descriptor) + unit - 1) / unit * unit;
}

[[noreturn]] void fail(int error, const char* what) {
    throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

UringQueueIo::UringQueueIo(WorkerContext& worker, int device, std::uint16_t queue,
                           std::uint16_t depth)
    : device_(device),
      queue_(queue),
      event_(std::make_shared<Event>(worker.io)),
      scheduler_(worker.scheduler) {
    OwnedFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event) fail(errno, "eventfd");
    event_->descriptor.assign(event.release());

    io_uring_params parameters{};
    // With DEFER_TASKRUN, the kernel passes requests on when this thread enters the ring, all that
    // wait at once, and does not interrupt it before.
    parameters.flags =
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    if (const int result = ::io_uring_queue_init_params(depth, &ring_, &parameters); result != 0) {
        fail(-result, "io_uring");
    }
    const int result = ::io_uring_register_eventfd(&ring_, event_->descriptor.native_handle());
    const auto offset = static_cast<off_t>(queue * mapping_length(max_depth));
    mapped_ = mapping_length(depth);
    void* const mapping =
        result == 0 ? ::mmap(nullptr, mapped_, PROT_READ, MAP_SHARED | MAP_POPULATE, device, offset)
                    : MAP_FAILED;
    if (mapping == MAP_FAILED) {
        const int error = result == 0 ? errno : -result;
        ::io_uring_queue_exit(&ring_);
        fail(error, "the queue's descriptors");
    }
    descriptors_ = static_cast<const Descriptor*>(mapping);
    ::io_uring_register_ring_fd(&ring_);  // makes system calls cheaper where it succeeds
}

UringQueueIo::~UringQueueIo() {
    event_->closed = true;
    ::io_uring_queue_exit(&ring_);
    ::munmap(const_cast<Descriptor*>(descriptors_), mapped_);
    boost::system::error_code ignored;
    event_->descriptor.close(ignored);
}

void UringQueueIo::add(std::uint32_t operation, std::uint16_t tag, std::int32_t result) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    GPUNBD_ASSERT(entry != nullptr, "the ring has an entry for each tag");
    ::io_uring_prep_rw(IORING_OP_URING_CMD, entry, device_, nullptr, 0, 0);
    entry->cmd_op = operation;
    entry->user_data = tag;
    const QueueCommand command{.queue = queue_, .tag = tag, .result = result};
    std::memcpy(entry->cmd, &command, sizeof command);
}

// The kernel may lack memory for a moment. Nothing else would submit the rest, so this tries again.
void UringQueueIo::submit() {
    while (::io_uring_sq_ready(&ring_) != 0) {
        const int result = ::io_uring_submit_and_get_events(&ring_);
        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) break;
    }
}

std::optional<QueueIo::Completion> UringQueueIo::next() {
    io_uring_cqe* entry = nullptr;
    if (::io_uring_peek_cqe(&ring_, &entry) != 0) return std::nullopt;
    const Completion completion{.tag = static_cast<std::uint16_t>(entry->user_data),
                                .result = entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return completion;
}

void UringQueueIo::notify(Scheduler::Runnable& queue) {
    GPUNBD_ASSERT(waiter_ == nullptr, "completions have one queue");
    waiter_ = &queue;
    set_wakes(false);
    scheduler_.add(*this);
    read(event_, wait_memory_);
}

// The kernel sets IORING_SQ_TASKRUN when it has a request to pass on.
bool UringQueueIo::handle() noexcept {
    if (!waiting_) return false;
    const unsigned flags = std::atomic_ref(*ring_.sq.kflags).load(std::memory_order_relaxed);
    if ((flags & IORING_SQ_TASKRUN) == 0 && ::io_uring_cq_ready(&ring_) == 0) return false;
    GPUNBD_ASSERT(waiter_ != nullptr, "a queue is known before it waits for completions");
    waiting_ = false;
    scheduler_.run_at_event(*waiter_);
    return true;
}

void UringQueueIo::set_wakes(bool wakes) noexcept {
    ::io_uring_cq_eventfd_toggle(&ring_, wakes);
    // The next handle() sees what arrived before the kernel could see the change.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// It only wakes the worker, which calls handle() before it blocks again.
void UringQueueIo::read(const std::shared_ptr<Event>& event,
                        const std::shared_ptr<WaitMemory>& memory) {
    event->descriptor.async_read_some(
        boost::asio::buffer(event->count),
        within(memory, [event, memory](boost::system::error_code, std::size_t) {
            if (!event->closed) read(event, memory);
        }));
}

ssize_t UringQueueIo::receive(std::uint16_t tag, std::span<const iovec> to, std::uint64_t offset) {
    const auto at = static_cast<off_t>(payload_position(queue_, tag) + offset);
    return ::preadv(device_, to.data(), static_cast<int>(to.size()), at);
}

ssize_t UringQueueIo::send(std::uint16_t tag, std::span<const std::byte> from,
                           std::uint64_t offset) {
    const auto at = static_cast<off_t>(payload_position(queue_, tag) + offset);
    return ::pwrite(device_, from.data(), from.size(), at);
}

}  // namespace gpunbd::server::ublk
