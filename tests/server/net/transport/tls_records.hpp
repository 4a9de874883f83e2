// Records of a client in TLS, sealed by hand: OpenSSL's library sends none that are legal and make
// no sense, such as thousands of changes of keys. AES-128-GCM alone; what the server sends is still
// read by the SSL that has shaken hands.
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

    // Before `ssl` shakes hands; it outlives this. Throws std::runtime_error where OpenSSL fails.
    explicit TlsRecords(SSL& ssl);
    TlsRecords(const TlsRecords&) = delete;
    TlsRecords& operator=(const TlsRecords&) = delete;

    // After the handshake, before `ssl` has sent anything else. From here on all that the client
    // sends comes from here.
    void begin();
    // `padding`: zeroes behind it, in TLS 1.3.
    std::vector<std::byte> seal(Type type, std::span<const std::byte> plain,
                                std::size_t padding = 0);
    // TLS 1.3: what comes next is sealed with the next key.
    std::vector<std::byte> update_key(bool answer_wanted = false);
    // TLS 1.2: the beginning of a ClientHello, which asks for a renegotiation.
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
    Secret secret_{};  // of TLS 1.3
    bool has_secret_ = false;
    std::array<unsigned char, key_size> key_{};
    std::array<unsigned char, nonce_size> nonce_{};  // of record 0; TLS 1.2: 4 bytes are used
    std::uint64_t sequence_ = 0;
};

}  // namespace gpunbd::server::test
