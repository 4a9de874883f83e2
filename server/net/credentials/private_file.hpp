// Files with secrets: refused if other users can read them, and wiped from memory after use.
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

// An allocator that wipes memory before freeing it.
template <typename T>
struct WipingAllocator : std::allocator<T> {
    template <typename U>
    struct rebind {
        using other = WipingAllocator<U>;
    };
    void deallocate(T* memory, std::size_t count) {
        OPENSSL_cleanse(memory, count * sizeof(T));
        std::allocator<T>::deallocate(memory, count);
    }
};
using SecretBytes = std::vector<char, WipingAllocator<char>>;

// Reads the whole file, without a byte order mark. Throws std::runtime_error if it cannot be read,
// is not a regular file, is too long, or is accessible to users other than its owner and group.
// `remedy`: how to create a missing file, for the error.
SecretBytes read_private_file(const std::string& path, std::string_view remedy);

}  // namespace gpunbd::server
