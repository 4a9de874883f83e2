// A file that gets its name only once it is complete and on the disk. It goes to the disk while it
// is written, and leaves the page cache, which belongs to other programs.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

class ReplacedFile {
 public:
    explicit ReplacedFile(std::string path) : path_(std::move(path)) {}
    // Removes the file if it was not published.
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    // Each returns an error, if there is one.
    std::optional<std::string> create();
    std::optional<std::string> append(const void* data, std::size_t length);
    // Leaves a hole.
    std::optional<std::string> skip(std::uint64_t length);
    // Replaces a file of that name. Blocks until all is on the disk.
    std::optional<std::string> publish();

 private:
    std::optional<std::string> write_back();
    std::string problem(int error) const;

    const std::string path_;
    std::string draft_;  // its name until then; empty: none
    OwnedFd fd_;
    std::uint64_t size_ = 0;
    std::uint64_t written_back_ = 0;  // bytes that the kernel has begun to write to the disk
};

}  // namespace gpunbd::storage
