// Executes reads and writes by threads of the device, where io_uring is not available.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

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
    std::mutex mutex_;  // guards the following members, and ThreadQueue::done_
    std::condition_variable added_;
    std::condition_variable completed_;
    ChainedQueue<FileIo> waiting_;
    bool stopping_ = false;
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
    IoThreads& threads_;
    ChainedQueue<FileIo> added_;
    std::uint32_t in_progress_ = 0;  // submitted, and not yet returned by completed()
    ChainedQueue<FileIo> done_;
    std::atomic<std::uint32_t> done_count_{0};
};

}  // namespace gpunbd::storage
