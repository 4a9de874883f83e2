#include "storage/devices/file/io_threads.hpp"

#include <unistd.h>

#include <cerrno>

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
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    added_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void IoThreads::run() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
        added_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        FileIo& io = *waiting_.pop();
        lock.unlock();
        execute(file_, io);
        lock.lock();
        auto& queue = static_cast<ThreadQueue&>(*io.queue);
        queue.done_.push(io);
        queue.done_count_.fetch_add(1, std::memory_order_release);
        completed_.notify_all();
    }
}

ThreadQueue::~ThreadQueue() {
    submit();
    std::unique_lock lock(threads_.mutex_);
    threads_.completed_.wait(
        lock, [this] { return done_count_.load(std::memory_order_relaxed) == in_progress_; });
}

void ThreadQueue::add(FileIo& io) {
    io.queue = this;
    added_.push(io);
    ++in_progress_;
}

void ThreadQueue::submit() {
    if (added_.empty()) return;
    {
        const std::lock_guard lock(threads_.mutex_);
        while (!added_.empty()) threads_.waiting_.push(*added_.pop());
    }
    threads_.added_.notify_all();
}

FileIo* ThreadQueue::completed() {
    if (done_count_.load(std::memory_order_acquire) == 0) return nullptr;
    const std::lock_guard lock(threads_.mutex_);
    done_count_.fetch_sub(1, std::memory_order_relaxed);
    --in_progress_;
    return done_.pop();
}

}  // namespace gpunbd::storage
