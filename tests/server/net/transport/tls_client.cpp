#include "tests/server/net/transport/tls_client.hpp"

#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "tests/protocol/wire.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

namespace {

namespace wire = protocol::wire;

bool receive_all(int fd, std::byte* into, std::size_t count) {
    while (count != 0) {
        pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
        if (::poll(&wait, 1, guard) != 1) return false;
        const ssize_t got = ::recv(fd, into, count, 0);
        if (got <= 0) return false;
        into += got;
        count -= static_cast<std::size_t>(got);
    }
    return true;
}

std::string openssl_words() {
    const unsigned long error = ::ERR_peek_error();
    const char* const reason = error == 0 ? nullptr : ::ERR_reason_error_string(error);
    ::ERR_clear_error();
    return reason == nullptr ? "the server hung up" : reason;
}

}  // namespace

TlsClientOptions with_certificate(const TlsFiles& files, int version, std::string name) {
    return {.version = version, .folder = files.folder(), .name = std::move(name)};
}

std::shared_ptr<const TlsContext> context_of(const config::TlsOptions& tls) {
    config::Options options;
    options.tls = tls;
    return TlsContext::load(options);
}

std::shared_ptr<const TlsContext> context_of(const TlsFiles& files, config::TlsMode mode) {
    return context_of({mode, files.folder(), true, files.path("keys.psk")});
}

TlsClient::TlsClient(int fd, TlsClientOptions options)
    : fd_(fd),
      options_(std::move(options)),
      context_(::SSL_CTX_new(::TLS_client_method()), ::SSL_CTX_free),
      ssl_(nullptr, ::SSL_free) {
    SSL_CTX& context = *context_;
    // The test needs the response of the server to old versions, so this library must permit them.
    ::SSL_CTX_set_security_level(&context, 0);
    SSL_CTX_set_min_proto_version(&context, options_.version);
    SSL_CTX_set_max_proto_version(&context, options_.version);
    ::SSL_CTX_set_options(&context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    if (!options_.user.empty()) {
        ::SSL_CTX_set_psk_client_callback(&context, give_key);
        ::SSL_CTX_set_cipher_list(&context, "ECDHE-PSK:DHE-PSK:PSK:@SECLEVEL=0");
    } else if (!options_.name.empty()) {
        const std::string start = options_.folder + "/" + options_.name;
        REQUIRE(::SSL_CTX_use_certificate_chain_file(&context, (start + "-cert.pem").c_str()) == 1);
        REQUIRE(::SSL_CTX_use_PrivateKey_file(&context, (start + "-key.pem").c_str(),
                                              SSL_FILETYPE_PEM) == 1);
    }
    ssl_.reset(::SSL_new(&context));
    SSL_set_app_data(ssl_.get(), this);
    REQUIRE(::SSL_set_fd(ssl_.get(), fd) == 1);
}

unsigned int TlsClient::give_key(SSL* ssl, const char*, char* user, unsigned int user_room,
                                 unsigned char* key, unsigned int key_room) {
    const auto& self = *static_cast<const TlsClient*>(SSL_get_app_data(ssl));
    std::snprintf(user, user_room, "%s", self.options_.user.c_str());
    long length = 0;
    unsigned char* const bytes = ::OPENSSL_hexstr2buf(self.options_.key.c_str(), &length);
    const auto used = std::min(static_cast<unsigned int>(length), key_room);
    std::memcpy(key, bytes, used);
    OPENSSL_free(bytes);
    return used;
}

bool TlsClient::ask_for_tls(std::span<const std::byte> behind) {
    std::array<std::byte, wire::greeting_size> greeting;
    if (!receive_all(fd_.get(), greeting.data(), greeting.size())) return false;
    const Bytes out = protocol::test::joined(
        {wire::client_flags(), wire::option(wire::opt::starttls), {behind.begin(), behind.end()}});
    if (::send(fd_.get(), out.data(), out.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(out.size())) {
        return false;
    }
    std::array<std::byte, wire::option_reply_size> bytes;
    if (!receive_all(fd_.get(), bytes.data(), bytes.size())) return false;
    const auto reply = wire::parse_option_reply(bytes);
    return reply && reply->type == protocol::OptionReply::ack;
}

std::string TlsClient::shake_hands() {
    if (::SSL_connect(ssl_.get()) != 1) return openssl_words();
    // In TLS 1.3 the server may refuse after the handshake of the client has succeeded. The next
    // request gets the alert.
    return {};
}

void TlsClient::enter() {
    REQUIRE(ask_for_tls());
    REQUIRE(shake_hands() == "");
}

void TlsClient::open_export() {
    send(served_options());
    REQUIRE(take(answer_to_go).has_value());
}

Bytes served_options() {
    const Bytes handshake = handshake_bytes({.structured = false});
    return {handshake.begin() + 4, handshake.end()};  // without the flags
}

std::optional<Bytes> TlsClient::take(std::size_t count) {
    Bytes bytes(count);
    for (std::size_t have = 0; have != count;) {
        std::size_t got = 0;
        if (::SSL_read_ex(ssl_.get(), bytes.data() + have, count - have, &got) != 1) {
            ::ERR_clear_error();
            return std::nullopt;
        }
        have += got;
    }
    return bytes;
}

bool TlsClient::received_close_notify() const {
    return (::SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void TlsClient::send(std::span<const std::byte> bytes) {
    std::size_t sent = 0;
    if (!bytes.empty()) ::SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
    ::ERR_clear_error();
}

void TlsClient::send_raw(std::span<const std::byte> bytes) const {
    REQUIRE(::send(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

bool TlsClient::hangs_up() {
    for (;;) {
        pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
        if (::poll(&wait, 1, guard) != 1) return false;
        std::array<char, 4096> thrown_away;
        if (::recv(fd_.get(), thrown_away.data(), thrown_away.size(), 0) <= 0) return true;
    }
}

std::vector<std::unique_ptr<TlsClient>> clients_before_handshake(Rig& rig, const TlsFiles& files,
                                                                 std::size_t count) {
    std::vector<std::unique_ptr<TlsClient>> clients;
    while (clients.size() != count) {
        clients.push_back(
            std::make_unique<TlsClient>(rig.connect_socket(), with_certificate(files)));
        REQUIRE(clients.back()->ask_for_tls());
        ::fcntl(clients.back()->fd(), F_SETFL, O_NONBLOCK);
    }
    rig.let_run();
    return clients;
}

// --- TlsGoBetween

TlsGoBetween::TlsGoBetween(int server, const TlsClientOptions& options)
    : options_(options), tls_(server, options) {
    thread_ = std::thread([this] {
        run();
        ::close(ends_.second);
        tls_.close();
    });
}

TlsGoBetween::~TlsGoBetween() { thread_.join(); }

void TlsGoBetween::run() {
    if (!tls_.ask_for_tls()) return;
    if (!tls_.shake_hands().empty()) return;
    // The greeting and the flags of the client precede its options.
    const Bytes greeting = wire::greeting();
    if (::send(ends_.second, greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0) return;
    std::array<std::byte, sizeof(std::uint32_t)> flags;
    if (receive_all(ends_.second, flags.data(), flags.size())) pump();
}

void TlsGoBetween::pump() {
    for (const int fd : {ends_.second, tls_.fd()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    SSL& ssl = tls_.ssl();
    Bytes up;
    Bytes down;
    for (;;) {
        bool moved = false;
        if (up.empty()) {
            up.resize(100'000);
            const ssize_t got = ::recv(ends_.second, up.data(), up.size(), 0);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return;
            up.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
            moved = !up.empty();
        }
        if (!up.empty()) {
            std::size_t sent = 0;
            const std::size_t length = std::min(up.size(), options_.longest_record);
            if (::SSL_write_ex(&ssl, up.data(), length, &sent) == 1) {
                up.erase(up.begin(), up.begin() + static_cast<std::ptrdiff_t>(sent));
                moved = true;
            }
        }
        if (down.empty()) {
            down.resize(100'000);
            std::size_t got = 0;
            const int returned = ::SSL_read_ex(&ssl, down.data(), down.size(), &got);
            const int error = ::SSL_get_error(&ssl, returned);
            if (returned != 1 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
                ::ERR_clear_error();
                return;
            }
            down.resize(returned == 1 ? got : 0);
            moved = moved || !down.empty();
        }
        if (!down.empty()) {
            const ssize_t sent = ::send(ends_.second, down.data(), down.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN) return;
            if (sent > 0) {
                down.erase(down.begin(), down.begin() + sent);
                moved = true;
            }
        }
        if (moved) continue;
        const auto events = [](bool in, bool out) {
            return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0));
        };
        std::array<pollfd, 2> waits{
            {{.fd = ends_.second, .events = events(up.empty(), !down.empty()), .revents = 0},
             {.fd = tls_.fd(), .events = events(down.empty(), !up.empty()), .revents = 0}}};
        ::poll(waits.data(), waits.size(), guard);
    }
}

}  // namespace gpunbd::server::test
