// What the channels of one `file:` device share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "storage/devices/file/block_cipher.hpp"
#include "storage/devices/file/blocks.hpp"
#include "storage/devices/file/file_io.hpp"
#include "storage/devices/file/spill_file.hpp"

namespace gpunbd::storage {

struct FileState {
    FileState(std::string device_id, std::string path, std::uint64_t bytes)
        : id(std::move(device_id)),
          file(std::move(path), bytes),
          written((SpillFile::header_bytes + bytes) / block_bytes) {}

    // Logs the failure. After a failed write nothing more is written, but reads continue.
    void report(const FileIo& io) noexcept;

    const std::string id;
    SpillFile file;
    WrittenBlocks written;
    BlockLocks locks;
    std::optional<BlockKey> key;         // empty: not encrypted
    std::unique_ptr<IoThreads> threads;  // null: each channel has an io_uring
    std::atomic<bool> failed{false};
    std::atomic<bool> unregistered_reported{false};

 private:
    std::atomic<std::int64_t> read_reported_{-1};  // the second of the last log line
};

}  // namespace gpunbd::storage
