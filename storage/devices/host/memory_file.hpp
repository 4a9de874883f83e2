// Memory of the system that has a descriptor and no name: who holds the descriptor holds the
// memory, whichever process made it. Its size is sealed, so that no other holder can take away what
// is mapped.
#pragma once

#include <cstdint>
#include <string>

namespace gpunbd::storage {

// Reads as zeroes, and takes no memory before it is written. -1: errno says why.
int make_memory_file(std::uint64_t bytes);
// Is that descriptor of another process one of these, of that size, and may it be written? Empty:
// it is; else why not, in a few words.
std::string why_no_memory_file(int descriptor, std::uint64_t bytes);
// What the system has given of it, in memory or in swap.
std::uint64_t bytes_in_memory_file(int descriptor);
// The range reads as zeroes, and its memory goes back to the system. False: nothing has changed.
bool punch_memory_file(int descriptor, std::uint64_t offset, std::uint64_t bytes);

}  // namespace gpunbd::storage
