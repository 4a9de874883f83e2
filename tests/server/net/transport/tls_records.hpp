// Seals TLS records of a client without OpenSSL's record layer, which cannot send legal but useless
// records such as thousands of key updates. Supports AES-128-GCM only. The SSL of the handshake
// still reads the records of the server.
#pragma once

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "tests/test.hpp"

namespace gpunbd::server::test::tls_records {

constexpr std::size_t tag_size = 16;
constexpr std::size_t header_size = 5;
constexpr std::size_t salt_size = 4;      // TLS 1.2: the implicit part of the nonce
constexpr std::size_t explicit_size = 8;  // the explicit part
constexpr std::size_t random_size = 32;   // of a ClientHello or ServerHello

inline void check(bool went_well) {
    if (!went_well) throw std::runtime_error("OpenSSL cannot make records");
}

inline int index_of_records() {
    static const int index = ::SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
}

inline void derive(const char* how, std::span<OSSL_PARAM> parameters,
                   std::span<unsigned char> into) {
    const std::unique_ptr<EVP_KDF, decltype(&::EVP_KDF_free)> kdf(
        ::EVP_KDF_fetch(nullptr, how, nullptr), ::EVP_KDF_free);
    check(kdf != nullptr);
    const std::unique_ptr<EVP_KDF_CTX, decltype(&::EVP_KDF_CTX_free)> context(
        ::EVP_KDF_CTX_new(kdf.get()), ::EVP_KDF_CTX_free);
    check(context != nullptr &&
          ::EVP_KDF_derive(context.get(), into.data(), into.size(), parameters.data()) == 1);
}

inline OSSL_PARAM sha256() {
    static char name[] = "SHA256";
    return ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, name, 0);
}

inline OSSL_PARAM bytes(const char* name, std::span<unsigned char> value) {
    return ::OSSL_PARAM_construct_octet_string(name, value.data(), value.size());
}

inline std::array<unsigned char, 8> big_endian(std::uint64_t number) {
    std::array<unsigned char, 8> out{};
    for (std::size_t i = 0; i != out.size(); ++i) {
        out[i] = static_cast<unsigned char>(number >> (56 - 8 * i));
    }
    return out;
}

class TlsRecords {
 public:
    enum class Type : unsigned char { alert = 21, handshake = 22, data = 23 };

    // To be created before `ssl` does its handshake; `ssl` outlives it. Throws std::runtime_error
    // if OpenSSL fails.
    explicit TlsRecords(SSL& ssl) : ssl_(ssl) {
        check(::SSL_set_ex_data(&ssl, index_of_records(), this) == 1 &&
              ::SSL_set_ciphersuites(&ssl, "TLS_AES_128_GCM_SHA256") == 1 &&
              ::SSL_set_cipher_list(
                  &ssl, "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256") == 1);
        ::SSL_CTX_set_keylog_callback(::SSL_get_SSL_CTX(&ssl), take_line);
    }
    TlsRecords(const TlsRecords&) = delete;
    TlsRecords& operator=(const TlsRecords&) = delete;

    // To be called after the handshake, before `ssl` sends anything else. Afterwards this object
    // seals all records of the client.
    void begin() {
        if (::SSL_version(&ssl_) == TLS1_3_VERSION) {
            check(has_secret_);
            use_secret();
        } else {
            use_master_key();
            sequence_ = 1;  // record 0 was Finished
        }
    }
    // `padding`: number of zeroes after the payload, in TLS 1.3.
    std::vector<std::byte> seal(Type type, std::span<const std::byte> plain,
                                std::size_t padding = 0) {
        const bool newer = ::SSL_version(&ssl_) == TLS1_3_VERSION;
        const auto number = big_endian(sequence_++);
        auto nonce = nonce_;
        std::vector<unsigned char> inner;
        if (!plain.empty()) {
            const auto* const at = reinterpret_cast<const unsigned char*>(plain.data());
            inner.assign(at, at + plain.size());
        }
        if (newer) {
            inner.push_back(static_cast<unsigned char>(type));
            inner.resize(inner.size() + padding);
            for (std::size_t i = 0; i != number.size(); ++i) nonce[salt_size + i] ^= number[i];
        } else {
            std::copy(number.begin(), number.end(), nonce.begin() + salt_size);
        }
        const std::size_t in_front = newer ? 0 : explicit_size;
        const std::size_t length = in_front + inner.size() + tag_size;
        std::vector<unsigned char> record{static_cast<unsigned char>(newer ? Type::data : type), 3,
                                          3, static_cast<unsigned char>(length >> 8),
                                          static_cast<unsigned char>(length)};
        std::vector<unsigned char> authenticated;
        if (newer) {
            authenticated = record;
        } else {
            authenticated.assign(number.begin(), number.end());
            authenticated.insert(authenticated.end(), record.begin(), record.begin() + 3);
            authenticated.push_back(static_cast<unsigned char>(inner.size() >> 8));
            authenticated.push_back(static_cast<unsigned char>(inner.size()));
            record.insert(record.end(), number.begin(), number.end());
        }
        record.resize(header_size + length);
        unsigned char* const sealed = record.data() + header_size + in_front;
        const std::unique_ptr<EVP_CIPHER_CTX, decltype(&::EVP_CIPHER_CTX_free)> cipher(
            ::EVP_CIPHER_CTX_new(), ::EVP_CIPHER_CTX_free);
        int done = 0;
        check(cipher != nullptr &&
              ::EVP_EncryptInit_ex(cipher.get(), ::EVP_aes_128_gcm(), nullptr, key_.data(),
                                   nonce.data()) == 1 &&
              ::EVP_EncryptUpdate(cipher.get(), nullptr, &done, authenticated.data(),
                                  static_cast<int>(authenticated.size())) == 1 &&
              ::EVP_EncryptUpdate(cipher.get(), sealed, &done, inner.data(),
                                  static_cast<int>(inner.size())) == 1 &&
              ::EVP_EncryptFinal_ex(cipher.get(), sealed + done, &done) == 1 &&
              ::EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, tag_size,
                                    sealed + inner.size()) == 1);
        const auto out = std::as_bytes(std::span(record));
        return {out.begin(), out.end()};
    }
    // TLS 1.3: later records are sealed with the next key.
    std::vector<std::byte> update_key(bool answer_wanted = false) {
        const std::array<std::byte, 5> message{std::byte{24}, std::byte{0}, std::byte{0},
                                               std::byte{1}, std::byte{answer_wanted}};
        std::vector<std::byte> record = seal(Type::handshake, message);
        Secret next{};
        expand("traffic upd", next);
        secret_ = next;
        use_secret();
        return record;
    }
    // TLS 1.2: the beginning of a ClientHello, which requests a renegotiation.
    std::vector<std::byte> renegotiate() {
        const std::array<std::byte, 4> message{std::byte{1}, std::byte{0}, std::byte{0},
                                               std::byte{0}};
        return seal(Type::handshake, message);
    }

 private:
    using Secret = std::array<unsigned char, 32>;
    static constexpr std::size_t key_size = 16;
    static constexpr std::size_t nonce_size = 12;

    // "CLIENT_TRAFFIC_SECRET_0 <random> <secret>", in hexadecimal
    static void take_line(const SSL* ssl, const char* line) {
        auto* const self = static_cast<TlsRecords*>(::SSL_get_ex_data(ssl, index_of_records()));
        const std::string_view text(line);
        if (self == nullptr || !text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) return;
        const std::string hex(text.substr(text.rfind(' ') + 1));
        long length = 0;
        unsigned char* const secret = ::OPENSSL_hexstr2buf(hex.c_str(), &length);
        if (secret == nullptr) return;
        self->has_secret_ = static_cast<std::size_t>(length) == self->secret_.size();
        if (self->has_secret_) std::copy_n(secret, length, self->secret_.begin());
        OPENSSL_free(secret);
    }
    // HKDF-Expand-Label (RFC 8446, 7.1)
    void expand(const char* label, std::span<unsigned char> into) {
        const std::string whole = std::string("tls13 ") + label;
        std::vector<unsigned char> info{0, static_cast<unsigned char>(into.size()),
                                        static_cast<unsigned char>(whole.size())};
        info.insert(info.end(), whole.begin(), whole.end());
        info.push_back(0);
        int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
        std::array<OSSL_PARAM, 5> parameters{
            sha256(), ::OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
            bytes(OSSL_KDF_PARAM_KEY, secret_), bytes(OSSL_KDF_PARAM_INFO, info),
            ::OSSL_PARAM_construct_end()};
        derive("HKDF", parameters, into);
    }
    void use_secret() {
        expand("key", key_);
        expand("iv", nonce_);
        sequence_ = 0;
    }
    // RFC 5246, 6.3
    void use_master_key() {
        std::array<unsigned char, 48> master{};
        std::array<unsigned char, 2 * random_size> randoms{};
        check(::SSL_SESSION_get_master_key(::SSL_get0_session(&ssl_), master.data(),
                                           master.size()) == master.size() &&
              ::SSL_get_server_random(&ssl_, randoms.data(), random_size) == random_size &&
              ::SSL_get_client_random(&ssl_, randoms.data() + random_size, random_size) ==
                  random_size);
        std::string label = "key expansion";
        std::vector<unsigned char> seed(label.begin(), label.end());
        seed.insert(seed.end(), randoms.begin(), randoms.end());
        std::array<OSSL_PARAM, 4> parameters{sha256(), bytes(OSSL_KDF_PARAM_SECRET, master),
                                             bytes(OSSL_KDF_PARAM_SEED, seed),
                                             ::OSSL_PARAM_construct_end()};
        std::array<unsigned char, 2 * (key_size + salt_size)> block{};
        derive("TLS1-PRF", parameters, block);
        std::copy_n(block.begin(), key_size, key_.begin());
        std::copy_n(block.begin() + 2 * key_size, salt_size, nonce_.begin());
    }

    SSL& ssl_;
    Secret secret_{};  // TLS 1.3
    bool has_secret_ = false;
    std::array<unsigned char, key_size> key_{};
    std::array<unsigned char, nonce_size> nonce_{};  // of record 0; TLS 1.2 uses 4 bytes
    std::uint64_t sequence_ = 0;
};

}  // namespace gpunbd::server::test::tls_records

namespace gpunbd::server::test {
using tls_records::TlsRecords;
}
