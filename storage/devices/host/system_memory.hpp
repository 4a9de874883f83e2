// The memory that the system can give to this process, limited by the machine and by all control
// groups of the process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace gpunbd::storage {

class SystemMemory {
 public:
    // `root`: where /proc and /sys are found.
    explicit SystemMemory(std::filesystem::path root) : root_(std::move(root)) {}

    // In bytes. Both read the files again each time, since limits change and processes move.
    std::uint64_t total() const;
    std::uint64_t available() const;
    // Whether a control group limits total().
    bool limited() const;

 private:
    const std::filesystem::path root_;
};

}  // namespace gpunbd::storage
