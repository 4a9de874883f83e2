// One read or write of whole blocks, and the queue through which a channel executes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/base/chained_queue.hpp"

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

}  // namespace gpunbd::storage
