// Encrypts blocks with AES-256-XTS. The tweak is the number of the block. The key is random and
// exists only in the memory of this process.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>

#include "storage/base/private_memory.hpp"
#include "storage/devices/file/blocks.hpp"

namespace gpunbd::storage {

// Locked into memory where the limits allow it, and left out of core dumps. The contexts of
// BlockCipher hold derived keys in ordinary memory, which OpenSSL erases when they are freed.
class BlockKey {
 public:
    // Throws std::runtime_error without a source of random numbers.
    BlockKey();
    ~BlockKey();
    BlockKey(const BlockKey&) = delete;
    BlockKey& operator=(const BlockKey&) = delete;

    const unsigned char* data() const {
        return reinterpret_cast<const unsigned char*>(memory_.data());
    }

 private:
    PrivateMemory memory_;
};

// For one thread.
class BlockCipher {
 public:
    // Throws std::runtime_error if OpenSSL does not provide the cipher.
    explicit BlockCipher(const BlockKey& key);

    // In place. `memory` has the blocks of the range. False: OpenSSL has failed.
    bool encrypt(std::byte* memory, BlockRange range) { return apply(*encryption_, memory, range); }
    bool decrypt(std::byte* memory, BlockRange range) { return apply(*decryption_, memory, range); }

 private:
    struct FreeContext {
        void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
    };
    using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;
    static Context make(const BlockKey& key, int encrypts);
    static bool apply(EVP_CIPHER_CTX& context, std::byte* memory, BlockRange range);

    Context encryption_;
    Context decryption_;
};

}  // namespace gpunbd::storage
