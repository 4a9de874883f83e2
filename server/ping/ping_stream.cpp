#include "server/ping/ping_stream.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "server/tls/openssl_error.hpp"

namespace gpunbd::server {

namespace {

struct FreeAddresses {
    void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

[[noreturn]] void fail_ping(const std::string& what, int error) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

[[noreturn]] void hung_up() { throw std::runtime_error("the server hung up"); }

void check_tls(bool went_well, const std::string& what) {
    if (went_well) return;
    throw std::runtime_error(fmt::format("{}: {}", what, take_openssl_error("no memory")));
}

// What the layout of nbdkit, libnbd and QEMU has for a client; its own certificate may be missing.
void use_certificates(SSL_CTX& context, const std::string& folder) {
    const std::string authority = folder + "/ca-cert.pem";
    check_tls(::SSL_CTX_load_verify_file(&context, authority.c_str()) == 1, authority);
    const std::string certificate = folder + "/client-cert.pem";
    const std::string key = folder + "/client-key.pem";
    if (!std::filesystem::exists(certificate)) return;
    check_tls(::SSL_CTX_use_certificate_chain_file(&context, certificate.c_str()) == 1,
              certificate);
    check_tls(::SSL_CTX_use_PrivateKey_file(&context, key.c_str(), SSL_FILETYPE_PEM) == 1, key);
}

// By a Unix socket nobody has a name, unless the URI says which.
void expect_name(SSL& ssl, const NbdTarget& target) {
    const std::string& name = target.tls_hostname.empty() ? target.host : target.tls_hostname;
    if (name.empty()) return;
    if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(&ssl), name.c_str()) == 1) return;
    check_tls(::SSL_set1_host(&ssl, name.c_str()) == 1, name);
    check_tls(SSL_set_tlsext_host_name(&ssl, name.c_str()) == 1, name);
}

}  // namespace

PingStream::PingStream(const NbdTarget& target, std::chrono::seconds timeout)
    : end_(Clock::now() + timeout) {
    connect(target);
}

void PingStream::connect(const NbdTarget& target) {
    if (!target.socket.empty()) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        target.socket.copy(address.sun_path, sizeof address.sun_path - 1);
        if (!connect_to(reinterpret_cast<const sockaddr&>(address), sizeof address)) {
            fail_ping("nobody answers there", errno);
        }
        return;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &list);
    if (error != 0) throw std::runtime_error(::gai_strerror(error));
    const std::unique_ptr<addrinfo, FreeAddresses> addresses(list);
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        if (connect_to(*each->ai_addr, each->ai_addrlen)) return;
    }
    fail_ping("nobody answers there", errno);
}

// False: errno says why not.
bool PingStream::connect_to(const sockaddr& address, socklen_t length) {
    socket_.emplace(::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_->get() < 0) return false;
    if (::connect(socket_->get(), &address, length) == 0) return true;
    if (errno != EINPROGRESS) return false;
    wait(POLLOUT);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_->get(), SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error == 0;
}

void PingStream::wait(short events) const {
    pollfd waiting{.fd = socket_->get(), .events = events, .revents = 0};
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
        if (left.count() <= 0)
            throw std::runtime_error("the time is over, and it has not answered");
        if (::poll(&waiting, 1, static_cast<int>(left.count())) > 0) return;
    }
}

void PingStream::wait_for_tls(int result) const {
    switch (::SSL_get_error(tls_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return wait(POLLIN);
        case SSL_ERROR_WANT_WRITE:
            return wait(POLLOUT);
        case SSL_ERROR_ZERO_RETURN:
            hung_up();
        default:
            break;
    }
    const long verified = ::SSL_get_verify_result(tls_.get());
    const std::string why = take_openssl_error("the server hung up");
    throw std::runtime_error(
        "TLS: " + (verified == X509_V_OK ? why : ::X509_verify_cert_error_string(verified)));
}

void PingStream::start_tls(const NbdTarget& target) {
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    check_tls(context_ != nullptr, "TLS");
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    ::SSL_CTX_set_options(context_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
    if (!target.certificates.empty()) {
        use_certificates(*context_, target.certificates);
    } else {
        ::SSL_CTX_set_default_verify_paths(context_.get());
    }
    ::SSL_CTX_set_verify(context_.get(), target.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                         nullptr);
    tls_.reset(::SSL_new(context_.get()));
    check_tls(tls_ != nullptr && ::SSL_set_fd(tls_.get(), socket_->get()) == 1, "TLS");
    if (target.verify) expect_name(*tls_, target);
    for (int result = 0; (result = ::SSL_connect(tls_.get())) != 1;) wait_for_tls(result);
}

void PingStream::send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        if (tls_) {
            const int sent = ::SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
            if (sent <= 0) {
                wait_for_tls(sent);
            } else {
                bytes = bytes.subspan(static_cast<std::size_t>(sent));
            }
            continue;
        }
        const ssize_t sent = ::send(socket_->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            wait(POLLOUT);
        } else if (errno != EINTR) {
            fail_ping("the server hung up", errno);
        }
    }
}

// At least one; 0: the end.
std::size_t PingStream::receive_some(std::span<std::byte> into) {
    for (;;) {
        if (tls_) {
            const int got = ::SSL_read(tls_.get(), into.data(), static_cast<int>(into.size()));
            if (got > 0) return static_cast<std::size_t>(got);
            if (::SSL_get_error(tls_.get(), got) == SSL_ERROR_ZERO_RETURN) return 0;
            wait_for_tls(got);
            continue;
        }
        const ssize_t got = ::recv(socket_->get(), into.data(), into.size(), 0);
        if (got >= 0) return static_cast<std::size_t>(got);
        if (errno != EAGAIN && errno != EINTR) fail_ping("the server hung up", errno);
        wait(POLLIN);
    }
}

void PingStream::receive(std::span<std::byte> into) {
    while (!into.empty()) {
        const std::size_t got = receive_some(into);
        if (got == 0) hung_up();
        into = into.subspan(got);
    }
}

}  // namespace gpunbd::server
