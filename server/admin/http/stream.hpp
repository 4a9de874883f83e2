// A client's socket, with or without TLS. An operation that is not done at its deadline ends,
// because the socket is closed then. Used by one thread.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/net/transport/pool.hpp"
#include "server/net/transport/receive_buffer.hpp"
#include "server/net/transport/transport.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {
class TlsContext;
class TlsStream;
}  // namespace gpunbd::server

namespace gpunbd::server::admin {

// A completion token: the error code becomes a result of co_await instead of an exception.
inline constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

class Stream : public std::enable_shared_from_this<Stream> {
 public:
    // `tls`: null: without TLS.
    Stream(boost::asio::io_context& io, OwnedFd socket, std::shared_ptr<const TlsContext> tls);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // For all operations that follow.
    void expires_after(std::chrono::milliseconds time);
    bool is_open() { return transport_.descriptor() >= 0; }
    boost::asio::any_io_executor executor() { return deadline_.get_executor(); }

    // Returns why the TLS handshake failed; empty: it succeeded, or there is no TLS.
    boost::asio::awaitable<std::string> handshake();
    // Returns 0 at the end of the connection.
    boost::asio::awaitable<std::size_t> read_some(std::span<char> into);
    // Returns false if the connection ended before all of it was sent.
    boost::asio::awaitable<bool> write(std::string_view bytes);
    // Ends the sending direction and discards what the client still sends, so that unread bytes do
    // not reset the connection before the client has the response.
    boost::asio::awaitable<void> linger();
    void close() noexcept;

 private:
    boost::asio::awaitable<bool> wait(Transport::Wait direction);

    Pool<ReceiveBuffer> large_buffers_{0};  // not used: begin_serving() is not called
    boost::asio::steady_timer deadline_;
    Transport transport_;
    TlsStream* tls_ = nullptr;  // of transport_; null: without TLS
    bool waiting_ = false;      // an operation is in progress
};

}  // namespace gpunbd::server::admin
