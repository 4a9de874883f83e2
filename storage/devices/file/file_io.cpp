#include "storage/devices/file/file_io.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

namespace {

void execute(int file, FileIo& io) noexcept {
    while (true) {
        std::byte* const memory = io.memory + io.done;
        const std::size_t bytes = io.bytes - io.done;
        const auto offset = static_cast<off_t>(io.offset + io.done);
        const ssize_t result =
            io.write ? ::pwrite(file, memory, bytes, offset) : ::pread(file, memory, bytes, offset);
        if (io.ended(result < 0 ? -errno : result)) return;
    }
}

}  // namespace

bool FileIo::ended(std::int64_t result) {
    // ECANCELED: the kernel could not start a thread that writes.
    if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) return false;
    if (result <= 0) {
        error = result == 0 ? EIO : static_cast<int>(-result);  // 0: the file has been truncated
        return true;
    }
    done += static_cast<std::uint32_t>(result);
    error = 0;
    return done >= bytes;
}

std::string UringQueue::reason_unavailable() {
    io_uring ring{};
    // EPERM: kernel.io_uring_disabled, or a system call filter; ENOSYS: an old kernel.
    if (const int result = ::io_uring_queue_init(2, &ring, 0); result != 0) {
        return std::strerror(-result);
    }
    io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring);
    const bool can = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    ::io_uring_free_probe(probe);
    ::io_uring_queue_exit(&ring);
    return can ? std::string() : "the kernel is older than 5.6";
}

UringQueue::UringQueue(int file, const PrivateMemory& memory) : file_(file) {
    if (const int result = ::io_uring_queue_init(depth, &ring_, 0); result != 0) {
        throw std::system_error(-result, std::generic_category(), "io_uring");
    }
    const iovec region{.iov_base = memory.data(), .iov_len = memory.size()};
    registered_ = ::io_uring_register_buffers(&ring_, &region, 1) == 0;
}

UringQueue::~UringQueue() {
    while (in_progress_ != 0) {
        submit();
        if (completed() == nullptr) ::io_uring_submit_and_wait(&ring_, 1);
    }
    ::io_uring_queue_exit(&ring_);
}

bool UringQueue::prepare(FileIo& io) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return false;
    std::byte* const memory = io.memory + io.done;
    const std::uint32_t bytes = io.bytes - io.done;
    const std::uint64_t offset = io.offset + io.done;
    if (registered_) {
        if (io.write) {
            ::io_uring_prep_write_fixed(entry, file_, memory, bytes, offset, 0);
        } else {
            ::io_uring_prep_read_fixed(entry, file_, memory, bytes, offset, 0);
        }
    } else if (io.write) {
        ::io_uring_prep_write(entry, file_, memory, bytes, offset);
    } else {
        ::io_uring_prep_read(entry, file_, memory, bytes, offset);
    }
    // A write changes the time in the inode, for which ext4 waits for its journal even if it is
    // asked not to wait. The journal may wait for a slow disk, or for memory that this worker
    // provides by serving a swap device.
    if (io.write) ::io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    ::io_uring_sqe_set_data(entry, &io);
    return true;
}

void UringQueue::add(FileIo& io) {
    GPUNBD_ASSERT(io.done < io.bytes, "a read or write that is added has bytes left");
    ++in_progress_;
    if (!prepare(io)) unprepared_.push(io);
}

// The kernel may refuse submissions for lack of memory. They stay in the ring until a later call.
void UringQueue::submit() {
    while (!unprepared_.empty() && prepare(*unprepared_.front())) unprepared_.pop();
    if (::io_uring_sq_ready(&ring_) != 0) ::io_uring_submit(&ring_);
}

FileIo* UringQueue::completed() {
    io_uring_cqe* entry = nullptr;
    if (::io_uring_peek_cqe(&ring_, &entry) != 0) return nullptr;
    auto& io = *static_cast<FileIo*>(::io_uring_cqe_get_data(entry));
    const int result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    GPUNBD_ASSERT(in_progress_ != 0, "the kernel completes what was added");
    --in_progress_;
    if (io.ended(result)) return &io;
    add(io);  // for the next submit()
    return nullptr;
}

IoThreads::IoThreads(int file) : file_(file) {
    const SignalsBlocked blocked;
    threads_.reserve(count);
    try {
        while (threads_.size() != count) threads_.emplace_back([this] { run(); });
    } catch (...) {
        stop();
        throw;
    }
}

void IoThreads::stop() noexcept {
    {
        const Lock lock(mutex_);
        stopping_ = true;
    }
    added_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void IoThreads::run() noexcept {
    const Lock lock(mutex_);
    while (true) {
        while (!stopping_ && waiting_.empty()) added_.wait(mutex_);
        if (waiting_.empty()) return;
        FileIo& io = *waiting_.pop();
        {
            const Unlock unlock(mutex_);
            execute(file_, io);
        }
        static_cast<ThreadQueue&>(*io.queue).put_done(io);
        completed_.notify_all();
    }
}

void ThreadQueue::put_done(FileIo& io) {
    done_.push(io);
    done_count_.fetch_add(1, std::memory_order_release);
}

ThreadQueue::~ThreadQueue() {
    submit();
    const Lock lock(threads_.mutex_);
    while (done_count_.load(std::memory_order_relaxed) != in_progress_) {
        threads_.completed_.wait(threads_.mutex_);
    }
}

void ThreadQueue::add(FileIo& io) {
    io.queue = this;
    added_.push(io);
    ++in_progress_;
}

void ThreadQueue::submit() {
    if (added_.empty()) return;
    {
        const Lock lock(threads_.mutex_);
        while (!added_.empty()) threads_.waiting_.push(*added_.pop());
    }
    threads_.added_.notify_all();
}

FileIo* ThreadQueue::completed() {
    if (done_count_.load(std::memory_order_acquire) == 0) return nullptr;
    const Lock lock(threads_.mutex_);
    GPUNBD_ASSERT(in_progress_ != 0 && !done_.empty(),
                  "what the threads have done is in the queue before it is counted");
    done_count_.fetch_sub(1, std::memory_order_relaxed);
    --in_progress_;
    return done_.pop();
}

}  // namespace gpunbd::storage
