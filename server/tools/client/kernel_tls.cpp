#include "server/tools/client/kernel_tls.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

// A socket that is connected to nobody has no use for it (ENOTCONN), where the kernel knows of it.
std::optional<Failure> kernel_lacks_tls() {
    constexpr std::string_view name = "tls";
    const OwnedFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (probe.get() < 0) return failure("a socket", errno);
    if (::setsockopt(probe.get(), IPPROTO_TCP, TCP_ULP, name.data(), name.size()) == 0 ||
        errno == ENOTCONN) {
        return std::nullopt;
    }
    return failure(
        "TLS of an attached device has to be done by the kernel, and this one has none (load it: "
        "modprobe tls)",
        errno);
}

std::optional<Failure> not_all_in_kernel(SSL& ssl) {
    const bool sends = BIO_get_ktls_send(::SSL_get_wbio(&ssl));
    const bool receives = BIO_get_ktls_recv(::SSL_get_rbio(&ssl));
    if (!sends || !receives) {
        return Failure{
            fmt::format("the kernel takes over {} of {}; it needs the cipher (modprobe gcm, or "
                        "chacha20poly1305), and OpenSSL its kernel TLS (this is {})",
                        sends      ? "only what is sent"
                        : receives ? "only what is received"
                                   : "nothing",
                        ::SSL_CIPHER_standard_name(::SSL_get_current_cipher(&ssl)),
                        ::OpenSSL_version(OPENSSL_VERSION))};
    }
    if (::SSL_has_pending(&ssl) != 0) return Failure{"the server sends what nobody has asked for"};
    return std::nullopt;
}

}  // namespace gpunbd::client
