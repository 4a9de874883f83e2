// TLS of a client, with OpenSSL: over its own socket, or as a proxy for a Client, which sends plain
// text.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/net/transport/tls_context.hpp"
#include "storage/base/owned_fd.hpp"
#include "tests/server/net/transport/tls_files.hpp"
#include "tests/server/rig.hpp"

namespace gpunbd::server::test {

struct TlsClientOptions {
    int version = TLS1_3_VERSION;
    std::string folder = {};                 // contains NAME-cert.pem and NAME-key.pem
    std::string name = "client";             // empty: no certificate
    std::string user = {};                   // non-empty: use a shared key instead
    std::string key = {};                    // hexadecimal
    std::size_t longest_record = 16 * 1024;  // maximum payload per record that the proxy sends
};

// The certificate NAME of these files.
TlsClientOptions with_certificate(const TlsFiles& files, int version = TLS1_3_VERSION,
                                  std::string name = "client");

// The TLS of a server with these options, or with these files and keys.
std::shared_ptr<const TlsContext> context_of(const config::TlsOptions& tls);
std::shared_ptr<const TlsContext> context_of(const TlsFiles& files,
                                             config::TlsMode mode = config::TlsMode::required);

// What such a client sends in TLS, and the number of bytes of the reply.
Bytes served_options();
inline constexpr std::size_t answer_to_go = 52;

// TLS over a blocking socket.
class TlsClient {
 public:
    TlsClient(int fd, TlsClientOptions options);
    TlsClient(const TlsClient&) = delete;
    TlsClient& operator=(const TlsClient&) = delete;

    // Receives the greeting, sends the flags and STARTTLS, and receives the reply, all in plain
    // text. Returns false if the server hung up.
    bool ask_for_tls(std::span<const std::byte> behind = {});
    // Returns the alert or OpenSSL's error as text. Empty: the handshake succeeded.
    std::string shake_hands();
    // Does both, and requires that they succeed.
    void enter();
    // Sends the options of a client without structured replies, and receives the reply to GO.
    void open_export();

    // Returns the next bytes, or nothing if the server has ended the connection; see
    // received_close_notify().
    std::optional<Bytes> take(std::size_t count);
    // Returns true if the server has sent close_notify.
    bool received_close_notify() const;
    void send(std::span<const std::byte> bytes);  // one record, if it fits
    // Sends bytes as they are: plain text, or records that the caller has sealed.
    void send_raw(std::span<const std::byte> bytes) const;
    // Discards all data. Returns false if the server stays connected for a long time.
    bool hangs_up();

    SSL& ssl() { return *ssl_; }
    int fd() const { return fd_.get(); }
    void close() { fd_ = OwnedFd(); }

 private:
    static unsigned int give_key(SSL* ssl, const char* hint, char* user, unsigned int user_room,
                                 unsigned char* key, unsigned int key_room);

    OwnedFd fd_;
    const TlsClientOptions options_;
    std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context_;
    std::unique_ptr<SSL, decltype(&::SSL_free)> ssl_;
};

// Clients that may begin their TLS handshake, with sockets that do not block.
std::vector<std::unique_ptr<TlsClient>> clients_before_handshake(Rig& rig, const TlsFiles& files,
                                                                 std::size_t count);

// A proxy between a Client and a server with TLS.
class TlsGoBetween {
 public:
    // Takes ownership of `server`, a socket that is connected to the server.
    TlsGoBetween(int server, const TlsClientOptions& options);
    ~TlsGoBetween();
    TlsGoBetween(const TlsGoBetween&) = delete;
    TlsGoBetween& operator=(const TlsGoBetween&) = delete;

    // The end of the socket pair for the Client.
    int client_end() const { return ends_.first; }

 private:
    void run();
    void pump();

    const TlsClientOptions options_;
    const std::pair<int, int> ends_ = unix_pair();
    TlsClient tls_;
    std::thread thread_;
};

}  // namespace gpunbd::server::test
