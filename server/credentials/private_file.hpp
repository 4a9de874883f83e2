// Files that hold secrets: read only where other users cannot, and wiped from memory when they go.
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpunbd::server {

// Memory that holds a secret is wiped before it is given back.
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

// All of the file. Throws std::runtime_error where it cannot be read, is no file, is absurdly long,
// or can be read or written by users that are neither its owner nor of its group.
SecretBytes read_private_file(const std::string& path);

}  // namespace gpunbd::server
