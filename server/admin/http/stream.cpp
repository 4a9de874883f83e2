#include "server/admin/http/stream.hpp"

#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "server/net/transport/tls_stream.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server::admin {

namespace asio = boost::asio;

namespace {

constexpr auto linger_time = std::chrono::seconds(1);
constexpr std::size_t max_discarded = 256 << 10;  // bytes

Socket socket_on(asio::io_context& io, OwnedFd fd) {
    int family = AF_UNIX;
    socklen_t length = sizeof family;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &length);
    Socket socket(io, asio::generic::stream_protocol(family, 0), fd.get());
    static_cast<void>(fd.release());  // the socket owns it now
    return socket;
}

}  // namespace

Stream::Stream(asio::io_context& io, OwnedFd socket, std::shared_ptr<const TlsContext> tls)
    : deadline_(io), transport_(socket_on(io, std::move(socket))) {
    if (tls) tls_ = &transport_.start_tls(std::move(tls), large_buffers_);
}

Stream::~Stream() = default;

void Stream::expires_after(std::chrono::milliseconds time) {
    deadline_.expires_after(time);
    deadline_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (!self || error || !self->waiting_) return;
        // The deadline may have been moved after this handler was queued.
        if (self->deadline_.expiry() <= asio::steady_timer::clock_type::now()) self->close();
    });
}

// Returns false if the socket was closed meanwhile.
asio::awaitable<bool> Stream::wait(Transport::Wait direction) {
    GPUNBD_ASSERT(!waiting_, "a stream has one operation at a time");
    waiting_ = true;
    if (direction == Transport::Wait::none) {
        co_await asio::post(executor(), asio::use_awaitable);
    } else {
        static_cast<void>(co_await transport_.wait(direction, as_result));
    }
    waiting_ = false;
    co_return is_open();
}

asio::awaitable<std::string> Stream::handshake() {
    while (tls_ != nullptr && !tls_->established()) {
        const Transport::Result result = tls_->shake_hands();
        if (result.ended) co_return tls_->failure();
        const bool open = co_await wait(result.wait);
        if (!open) co_return "timed out";
    }
    co_return "";
}

asio::awaitable<std::size_t> Stream::read_some(std::span<char> into) {
    while (is_open()) {
        iovec piece{.iov_base = into.data(), .iov_len = into.size()};
        const Transport::Result result = transport_.receive({&piece, 1});
        if (result.ended) break;
        // A client that sends without a pause must not delay the others.
        co_await wait(result.bytes != 0 ? Transport::Wait::none : result.wait);
        if (result.bytes != 0) co_return result.bytes;
    }
    co_return 0;
}

asio::awaitable<bool> Stream::write(std::string_view bytes) {
    while (!bytes.empty() && is_open()) {
        // Transport does not write through it.
        iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
        const Transport::Result result = transport_.send({&piece, 1});
        if (result.ended) break;
        GPUNBD_ASSERT(result.bytes <= bytes.size(), "no more is sent than was given");
        bytes.remove_prefix(result.bytes);
        if (result.bytes == 0) co_await wait(result.wait);
    }
    // A client that pipelines requests must not delay the others.
    co_await wait(Transport::Wait::none);
    co_return bytes.empty();
}

asio::awaitable<void> Stream::linger() {
    if (!is_open()) co_return;
    if (tls_ != nullptr) tls_->say_goodbye();
    ::shutdown(transport_.descriptor(), SHUT_WR);
    expires_after(linger_time);
    std::array<char, 4096> discarded{};
    std::size_t length = 0;
    for (std::size_t all = 0; all < max_discarded; all += length) {
        length = co_await read_some(discarded);
        if (length == 0) co_return;
    }
}

// TLS keeps the number of the descriptor, which is not its own any more once it is closed.
void Stream::close() noexcept {
    if (is_open()) transport_.close();
}

}  // namespace gpunbd::server::admin
