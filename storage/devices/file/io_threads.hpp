// Executes reads and writes by threads of the device, where io_uring is not available.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "storage/base/mutex.hpp"
#include "storage/devices/file/file_io.hpp"

namespace gpunbd::storage {

class IoThreads {
 public:
    static constexpr std::size_t count = 4;

    // Throws std::system_error.
    explicit IoThreads(int file);
    ~IoThreads() { stop(); }
    IoThreads(const IoThreads&) = delete;
    IoThreads& operator=(const IoThreads&) = delete;

 private:
    friend class ThreadQueue;
    void run() noexcept;
    void stop() noexcept;

    int file_;
    Mutex mutex_;
    Condition added_;
    Condition completed_;
    ChainedQueue<FileIo> waiting_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<std::thread> threads_;
};

// The queue of one channel.
class ThreadQueue final : public FileQueue {
 public:
    explicit ThreadQueue(IoThreads& threads) : threads_(threads) {}
    ~ThreadQueue() override;

    void add(FileIo& io) override;
    void submit() override;
    FileIo* completed() override;

 private:
    friend class IoThreads;
    // Called with the lock of threads_ held. The analysis cannot see that they are the caller.
    void put_done(FileIo& io) NO_THREAD_SAFETY_ANALYSIS;

    IoThreads& threads_;
    ChainedQueue<FileIo> added_;
    std::uint32_t in_progress_ = 0;  // submitted, and not yet returned by completed()
    ChainedQueue<FileIo> done_ GUARDED_BY(threads_.mutex_);
    std::atomic<std::uint32_t> done_count_{0};
};

}  // namespace gpunbd::storage
