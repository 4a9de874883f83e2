// Executes reads and writes through an io_uring of the channel.
#pragma once

#include <liburing.h>

#include <string>

#include "storage/base/private_memory.hpp"
#include "storage/devices/file/file_io.hpp"

namespace gpunbd::storage {

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

}  // namespace gpunbd::storage
