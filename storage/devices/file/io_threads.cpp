#include "storage/devices/file/io_threads.hpp"

#include <unistd.h>

#include <cerrno>

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
