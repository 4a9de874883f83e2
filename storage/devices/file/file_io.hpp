// One read or write of whole blocks, and the queue through which a channel executes them.
#pragma once

#include <liburing.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "storage/base/chained_queue.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/private_memory.hpp"

namespace gpunbd::storage {

class FileQueue;

// It belongs to the queue, with its memory, from add() until completed() returns it.
struct FileIo {
    bool write = false;
    std::byte* memory = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint32_t done = 0;    // bytes
    int error = 0;             // errno, once it is complete; 0: all bytes were transferred
    FileIo* next = nullptr;    // used by the queue, like `queue`
    FileQueue* queue = nullptr;

    // Takes the result of one system call: the number of bytes, or a negative errno. False: the
    // remaining bytes have to be transferred by another call.
    bool ended(std::int64_t result);
};

class FileQueue {
 public:
    FileQueue() = default;
    // Waits for the end of what was submitted.
    virtual ~FileQueue() = default;
    FileQueue(const FileQueue&) = delete;
    FileQueue& operator=(const FileQueue&) = delete;

    // None of these functions waits for the file. At most `depth` may be in progress.
    static constexpr std::uint32_t depth = 256;
    virtual void add(FileIo& io) = 0;
    virtual void submit() = 0;
    virtual FileIo* completed() = 0;  // null: none at present
};

// Executes reads and writes through an io_uring of the channel.
class UringQueue final : public FileQueue {
 public:
    // Why this process cannot use io_uring; empty: it can.
    static std::string reason_unavailable();

    // All reads and writes use `memory`, which is registered with the kernel if the limit of locked
    // memory allows it. Throws std::system_error.
    UringQueue(int file, const PrivateMemory& memory);
    ~UringQueue() override;

    bool registered() const { return registered_; }
    void add(FileIo& io) override;
    void submit() override;
    FileIo* completed() override;

 private:
    bool prepare(FileIo& io);

    int file_;
    bool registered_ = false;
    io_uring ring_{};
    std::uint32_t in_progress_ = 0;
    ChainedQueue<FileIo> unprepared_;  // the ring is full
};

// Executes reads and writes by threads of the device, where io_uring is not available.
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
