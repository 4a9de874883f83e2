#include "server/tools/client/stream.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::client {

namespace {

constexpr const char* closed_message = "the server closed the connection during the handshake";

}  // namespace

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

std::optional<Failure> Stream::wait_for(short events) const {
    if (wait_for_socket(socket_.get(), events, until_)) return std::nullopt;
    return Failure{"the server did not answer within the time limit"};
}

std::optional<Failure> Stream::wait_for_tls(int result) const {
    switch (::SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return wait_for(POLLIN);
        case SSL_ERROR_WANT_WRITE:
            return wait_for(POLLOUT);
        case SSL_ERROR_ZERO_RETURN:
            if (::SSL_is_init_finished(ssl_.get()) == 1) return Failure{closed_message};
            [[fallthrough]];  // the error queue may be empty
        default:
            return Failure{"TLS: " + tls_->failure_of(*ssl_)};
    }
}

std::optional<Failure> Stream::start_tls(std::shared_ptr<const Tls> tls) {
    ::ERR_clear_error();
    tls_ = std::move(tls);
    ssl_ = tls_->begin(socket_.get());
    if (!ssl_) return Failure{"TLS: out of memory"};
    for (int result = 0; (result = ::SSL_connect(ssl_.get())) != 1;) {
        if (auto failed = wait_for_tls(result)) return failed;
    }
    return tls_->by() == TlsBy::kernel ? not_all_in_kernel(*ssl_) : std::nullopt;
}

std::optional<Failure> Stream::send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        if (ssl_) {
            std::size_t sent = 0;
            const int result = ::SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
            bytes = bytes.subspan(sent);
            if (result == 1) continue;
            if (auto failed = wait_for_tls(result)) return failed;
            continue;
        }
        const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (auto failed = wait_for(POLLOUT)) return failed;
        } else if (errno != EINTR) {
            return failure(closed_message, errno);
        }
    }
    return std::nullopt;
}

std::optional<Failure> Stream::receive(std::span<std::byte> into) {
    while (!into.empty()) {
        if (ssl_) {
            std::size_t got = 0;
            const int result = ::SSL_read_ex(ssl_.get(), into.data(), into.size(), &got);
            into = into.subspan(got);
            if (result == 1) continue;
            if (auto failed = wait_for_tls(result)) return failed;
            continue;
        }
        const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), 0);
        if (got > 0) {
            into = into.subspan(static_cast<std::size_t>(got));
        } else if (got == 0) {
            return Failure{closed_message};
        } else if (errno == EAGAIN) {
            if (auto failed = wait_for(POLLIN)) return failed;
        } else if (errno != EINTR) {
            return failure(closed_message, errno);
        }
    }
    return std::nullopt;
}

Expected<OwnedFd, Failure> Stream::release_socket() {
    if (ssl_) {
        if (auto failed = not_all_in_kernel(*ssl_)) return std::move(*failed);
        ssl_.reset();  // frees the session without a close_notify; the socket stays open
    }
    const int flags = ::fcntl(socket_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return failure("a socket", errno);
    }
    return std::move(socket_);
}

}  // namespace gpunbd::client
