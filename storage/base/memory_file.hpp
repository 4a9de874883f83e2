// Anonymous memory with a descriptor (memfd), which lives as long as any process has the descriptor
// open. Its size is sealed, so that no other process can truncate the mapped memory.
#pragma once

#include <cstdint>
#include <string>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

// Reads as zeroes, and takes memory only when it is written. Returns no descriptor and sets errno
// on failure.
OwnedFd make_memory_file(std::uint64_t bytes);
// Checks a descriptor that another process sent. Returns the reason why it is not a writable memory
// file of that size; empty: it is.
std::string memory_file_error(const OwnedFd& file, std::uint64_t bytes);
// What the system has allocated for it, in memory or swap.
std::uint64_t bytes_in_memory_file(int file);
// Frees the memory of the range, which reads as zeroes afterwards. Returns false if nothing has
// changed.
bool punch_memory_file(const OwnedFd& file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace gpunbd::storage
