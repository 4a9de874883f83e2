// What the system can still give to this process: what the machine has, and no more than each
// control group that the process is in leaves it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace gpunbd::storage {

class SystemMemory {
 public:
    // `root`: where /proc and /sys are found.
    explicit SystemMemory(std::filesystem::path root) : root_(std::move(root)) {}

    // Bytes. Both are read anew each time: limits change, and processes are moved.
    std::uint64_t total() const;
    std::uint64_t available() const;

 private:
    const std::filesystem::path root_;
};

}  // namespace gpunbd::storage
