// The client side of TLS over a socket that it makes non-blocking. Reads and writes behave like
// recv() and sendmsg(), including errno. It makes few calls, so that it stays cheaper than a
// server.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace gpunbd::bench {

class TlsContext {
 public:
    // `folder` contains ca-cert.pem, which must have signed the server's certificate, and, for
    // servers that request them, client-cert.pem and client-key.pem.
    explicit TlsContext(const std::string& folder)
        : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
        const std::string certificate = folder + "/client-cert.pem";
        const std::string key = folder + "/client-key.pem";
        if (!context_ ||
            SSL_CTX_load_verify_file(context_.get(), (folder + "/ca-cert.pem").c_str()) != 1)
            throw std::runtime_error(folder + "/ca-cert.pem cannot be read");
        ERR_clear_error();
        if (SSL_CTX_use_certificate_chain_file(context_.get(), certificate.c_str()) == 1 &&
            SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM) != 1)
            throw std::runtime_error(key + " cannot be used");
        // Offers a single cipher, so that all servers are compared with the same one.
        SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
        SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256");
        SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
        SSL_CTX_set_read_ahead(context_.get(), 1);
        // OpenSSL moves all remaining data to the front of this buffer before each record.
        SSL_CTX_set_default_read_buffer_len(context_.get(), 64 * 1024);
        SSL_CTX_set_mode(context_.get(), SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    SSL* session() const { return SSL_new(context_.get()); }

 private:
    std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
};

class TlsClient {
 public:
    // Does the handshake on a connected, blocking socket.
    TlsClient(const TlsContext& context, int fd)
        : ssl_(context.session(), SSL_free),
          fd_(fd),
          record_(std::make_unique<std::array<unsigned char, SSL3_RT_MAX_PLAIN_LENGTH>>()) {
        if (!ssl_ || SSL_set_fd(ssl_.get(), fd) != 1 || SSL_connect(ssl_.get()) != 1)
            throw std::runtime_error("TLS handshake: " + reason());
        BIO_socket_nbio(fd, 1);
    }

    std::string cipher() const {
        return std::string(SSL_get_version(ssl_.get())) + " " + SSL_get_cipher_name(ssl_.get());
    }

    // Like sendmsg(): returns the number of sent bytes, or -1. The remaining bytes must be sent
    // again unchanged.
    ssize_t send(const iovec* pieces, std::size_t count) {
        std::size_t sent = 0;
        std::size_t at = 0;  // in the first piece
        while (count != 0) {
            std::size_t filled = 0;
            auto* piece = pieces;
            auto left = count;
            auto from = at;
            while (left != 0 && filled != record_->size()) {
                const auto part = std::min(piece->iov_len - from, record_->size() - filled);
                std::memcpy(record_->data() + filled,
                            static_cast<const unsigned char*>(piece->iov_base) + from, part);
                filled += part;
                from += part;
                if (from != piece->iov_len) break;
                ++piece;
                --left;
                from = 0;
            }
            ERR_clear_error();
            const int gone = SSL_write(ssl_.get(), record_->data(), static_cast<int>(filled));
            if (gone <= 0) return sent != 0 ? static_cast<ssize_t>(sent) : failed(gone);
            sent += filled;
            pieces = piece;
            count = left;
            at = from;
        }
        return static_cast<ssize_t>(sent);
    }

    // Like recv(): returns all available bytes up to `room`, 0 at the end, or -1.
    ssize_t receive(void* into, std::size_t room, int flags) {
        std::size_t got = 0;
        for (;;) {
            ERR_clear_error();
            const int part = SSL_read(ssl_.get(), static_cast<unsigned char*>(into) + got,
                                      static_cast<int>(std::min<std::size_t>(room - got, 1 << 30)));
            if (part > 0) {
                got += static_cast<std::size_t>(part);
                if (got != room && SSL_has_pending(ssl_.get()) == 1) continue;
                return static_cast<ssize_t>(got);
            }
            if (got != 0) return static_cast<ssize_t>(got);
            const ssize_t result = failed(part);
            if (result == 0 || errno != EAGAIN || (flags & MSG_DONTWAIT) != 0) return result;
            pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
            poll(&wait, 1, -1);
        }
    }
    bool pending() const { return SSL_has_pending(ssl_.get()) == 1; }

 private:
    ssize_t failed(int result) {
        switch (SSL_get_error(ssl_.get(), result)) {
            case SSL_ERROR_WANT_READ:
            case SSL_ERROR_WANT_WRITE:
                errno = EAGAIN;
                return -1;
            case SSL_ERROR_ZERO_RETURN:
                return 0;
            case SSL_ERROR_SYSCALL:
                if (errno == 0) errno = ECONNRESET;
                return -1;
            default:
                errno = EPROTO;
                return -1;
        }
    }
    static std::string reason() {
        const char* const text = ERR_reason_error_string(ERR_get_error());
        return text != nullptr ? text : "the connection was lost";
    }

    std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
    int fd_;
    std::unique_ptr<std::array<unsigned char, SSL3_RT_MAX_PLAIN_LENGTH>> record_;
};

}  // namespace gpunbd::bench
