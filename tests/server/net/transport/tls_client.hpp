// A client's TLS, by OpenSSL's library: over a socket of its own, or as a go-between for a Client,
// which speaks in the clear to it.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "tests/server/client.hpp"

namespace gpunbd::server::test {

struct TlsClientOptions {
    int version = TLS1_3_VERSION;
    std::string folder = {};                 // with NAME-cert.pem, NAME-key.pem to show
    std::string name = "client";             // empty: none is shown
    std::string user = {};                   // with a shared key instead
    std::string key = {};                    // hexadecimal
    std::size_t longest_record = 16 * 1024;  // bytes that a go-between sends in one
};

// TLS over a socket that blocks.
class TlsClient {
 public:
    TlsClient(int fd, TlsClientOptions options);
    ~TlsClient();
    TlsClient(const TlsClient&) = delete;
    TlsClient& operator=(const TlsClient&) = delete;

    // In the clear: the greeting is taken, the flags and STARTTLS are sent, and its grant is taken.
    // False: the server hung up.
    bool ask_for_tls(std::span<const std::byte> behind = {});
    // The alert, or whatever OpenSSL says, in words; empty: TLS is on.
    std::string shake_hands();
    // Both, which have to go well.
    void enter();

    // The next bytes; nothing: the server has ended, as ended() says.
    std::optional<Bytes> take(std::size_t count);
    // True where it said so in TLS, by close_notify.
    bool told_end() const;
    void send(std::span<const std::byte> bytes);  // one record, if it fits into one
    bool hangs_up();  // whatever comes is thrown away; false: it does not for a long time

    SSL& ssl() { return *ssl_; }
    int fd() const { return fd_; }
    void close();

 private:
    static unsigned int give_key(SSL* ssl, const char* hint, char* user, unsigned int user_room,
                                 unsigned char* key, unsigned int key_room);

    int fd_;
    const TlsClientOptions options_;
    std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context_;
    std::unique_ptr<SSL, decltype(&::SSL_free)> ssl_;
};

// Between a Client and a server that has TLS.
class TlsGoBetween {
 public:
    // `server`: the socket that the server is at, taken over.
    TlsGoBetween(int server, const TlsClientOptions& options);
    ~TlsGoBetween();
    TlsGoBetween(const TlsGoBetween&) = delete;
    TlsGoBetween& operator=(const TlsGoBetween&) = delete;

    // The other end, for the one Client.
    int client_end() const { return ends_[0]; }

 private:
    void run();
    void pump();

    const TlsClientOptions options_;
    int ends_[2];
    TlsClient tls_;
    std::thread thread_;
};

}  // namespace gpunbd::server::test
