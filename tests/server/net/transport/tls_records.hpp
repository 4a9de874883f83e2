// Seals TLS records of a client without OpenSSL's record layer, which cannot send legal but useless
// records such as thousands of key updates. Supports AES-128-GCM only. The SSL of the handshake
// still reads the records of the server.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gpunbd::server::test {

class TlsRecords {
 public:
    enum class Type : unsigned char { alert = 21, handshake = 22, data = 23 };

    // To be created before `ssl` does its handshake; `ssl` outlives it. Throws std::runtime_error
    // if OpenSSL fails.
    explicit TlsRecords(SSL& ssl);
    TlsRecords(const TlsRecords&) = delete;
    TlsRecords& operator=(const TlsRecords&) = delete;

    // To be called after the handshake, before `ssl` sends anything else. Afterwards this object
    // seals all records of the client.
    void begin();
    // `padding`: number of zeroes after the payload, in TLS 1.3.
    std::vector<std::byte> seal(Type type, std::span<const std::byte> plain,
                                std::size_t padding = 0);
    // TLS 1.3: later records are sealed with the next key.
    std::vector<std::byte> update_key(bool answer_wanted = false);
    // TLS 1.2: the beginning of a ClientHello, which requests a renegotiation.
    std::vector<std::byte> renegotiate();

 private:
    using Secret = std::array<unsigned char, 32>;
    static constexpr std::size_t key_size = 16;
    static constexpr std::size_t nonce_size = 12;

    static void take_line(const SSL* ssl, const char* line);
    void expand(const char* label, std::span<unsigned char> into);
    void use_secret();
    void use_master_key();

    SSL& ssl_;
    Secret secret_{};  // TLS 1.3
    bool has_secret_ = false;
    std::array<unsigned char, key_size> key_{};
    std::array<unsigned char, nonce_size> nonce_{};  // of record 0; TLS 1.2 uses 4 bytes
    std::uint64_t sequence_ = 0;
};

}  // namespace gpunbd::server::test
