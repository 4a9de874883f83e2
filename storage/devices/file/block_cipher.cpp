#include "storage/devices/file/block_cipher.hpp"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <sys/mman.h>

#include <array>
#include <stdexcept>

namespace gpunbd::storage {

namespace {

constexpr std::size_t key_bytes = 64;    // two keys of AES-256
constexpr std::size_t tweak_bytes = 16;  // little-endian

}  // namespace

BlockKey::BlockKey() : memory_(key_bytes) {
    ::madvise(memory_.data(), key_bytes, MADV_DONTDUMP);
    // May fail because of RLIMIT_MEMLOCK.
    static_cast<void>(::mlock(memory_.data(), key_bytes));
    if (::RAND_bytes(reinterpret_cast<unsigned char*>(memory_.data()), key_bytes) == 1) return;
    ::ERR_clear_error();
    throw std::runtime_error("OpenSSL has no random numbers for its key");
}

BlockKey::~BlockKey() { ::OPENSSL_cleanse(memory_.data(), key_bytes); }

BlockCipher::BlockCipher(const BlockKey& key)
    : encryption_(make(key, 1)), decryption_(make(key, 0)) {}

BlockCipher::Context BlockCipher::make(const BlockKey& key, int encrypts) {
    Context context(::EVP_CIPHER_CTX_new());
    if (context && ::EVP_CipherInit_ex(context.get(), ::EVP_aes_256_xts(), nullptr, key.data(),
                                       nullptr, encrypts) == 1) {
        return context;
    }
    ::ERR_clear_error();
    throw std::runtime_error("OpenSSL does not provide AES-256-XTS");
}

bool BlockCipher::apply(EVP_CIPHER_CTX& context, std::byte* memory, BlockRange range) {
    for (std::uint64_t block = range.first; block != range.end; ++block, memory += block_bytes) {
        std::array<unsigned char, tweak_bytes> tweak{};
        for (unsigned i = 0; i != sizeof(block); ++i) {
            tweak[i] = static_cast<unsigned char>(block >> 8 * i);
        }
        auto* const bytes = reinterpret_cast<unsigned char*>(memory);
        int length = 0;
        if (::EVP_CipherInit_ex(&context, nullptr, nullptr, nullptr, tweak.data(), -1) != 1 ||
            ::EVP_CipherUpdate(&context, bytes, &length, bytes, int{block_bytes}) != 1 ||
            length != int{block_bytes}) {
            ::ERR_clear_error();
            return false;
        }
    }
    return true;
}

}  // namespace gpunbd::storage
