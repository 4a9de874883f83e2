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

// On an unconnected socket the kernel fails with ENOTCONN if it supports TLS.
std::optional<Failure> kernel_lacks_tls() {
    constexpr std::string_view name = "tls";
    const OwnedFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (probe.get() < 0) return failure("a socket", errno);
    if (::setsockopt(probe.get(), IPPROTO_TCP, TCP_ULP, name.data(), name.size()) == 0 ||
        errno == ENOTCONN) {
        return std::nullopt;
    }
    return failure(
        "the kernel does not support TLS, which an attached device needs (load it: modprobe tls)",
        errno);
}

std::optional<Failure> not_all_in_kernel(SSL& ssl) {
    const bool sends = BIO_get_ktls_send(::SSL_get_wbio(&ssl));
    const bool receives = BIO_get_ktls_recv(::SSL_get_rbio(&ssl));
    if (!sends || !receives) {
        return Failure{
            fmt::format("the kernel offloads {} of {}; it needs the cipher (modprobe gcm, or "
                        "chacha20poly1305), and OpenSSL with kernel TLS (this is {})",
                        sends      ? "only sending"
                        : receives ? "only receiving"
                                   : "nothing",
                        ::SSL_CIPHER_standard_name(::SSL_get_current_cipher(&ssl)),
                        ::OpenSSL_version(OPENSSL_VERSION))};
    }
    if (::SSL_has_pending(&ssl) != 0) return Failure{"the server sent data that was not requested"};
    return std::nullopt;
}

}  // namespace gpunbd::client
