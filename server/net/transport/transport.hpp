// Sends and receives over one socket, with gathered I/O and without blocking, in plain text or TLS.
// If nothing moves, the result says which direction to wait for.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace gpunbd::server {

using Socket = boost::asio::generic::stream_protocol::socket;

class ReceiveBuffer;
class TlsContext;
class TlsStream;
template <typename T>
class Pool;

class Transport {
 public:
    // `socket` is connected and belongs to the worker's io_context.
    explicit Transport(Socket socket);
    ~Transport();

    enum class Wait : std::uint8_t { none, readable, writable };
    struct Result {
        std::size_t bytes = 0;
        Wait wait = Wait::none;  // nothing moved; wait for this before the next call
        bool ended = false;      // end of stream, or errno in `error`
        int error = 0;
        // The work of receiving, as bytes of payload that take as long; 0: as `bytes`. TLS may do
        // work without bytes, wait or end: call again after other connections had their turn.
        std::size_t work = 0;
        // receive() may return more although the socket has none, since TLS reads many records at
        // once.
        bool more = false;
    };
    Result receive(std::span<iovec> into);
    Result send(std::span<iovec> from);
    // The same for any socket, in plain text.
    static Result receive_from(int fd, std::span<iovec> into);
    static Result send_to(int fd, std::span<iovec> from);

    // Starts TLS with its handshake. `buffers` must outlive the transport.
    TlsStream& start_tls(std::shared_ptr<const TlsContext> context, Pool<ReceiveBuffer>& buffers);
    // The peer is served now and may use more memory than in its handshake.
    void begin_serving();
    // The cause of the end of receive(), if there is more to say than errno; else empty.
    std::string_view failure() const;
    std::size_t memory() const;  // bytes
    // Frees memory that an idle connection does not need. Returns what is left, in bytes.
    std::size_t release_memory() noexcept;

    // Sends keepalives when nothing is received for half of `limit`. Returns false if this is not
    // TCP; the kernel detects a vanished peer of other sockets itself.
    bool enable_keepalive(std::chrono::seconds limit) noexcept;
    // TCP has retransmitted or probed for at least this long without an acknowledgement.
    bool silent_for(std::chrono::milliseconds time) noexcept;

    // The peer has closed both directions. What it sent may not have been received yet. Not
    // reliable over TCP.
    bool hung_up() noexcept;

    // The peer of a vsock socket that is closed before it has shut down its own direction gets
    // ENOTCONN instead of the end of the stream: vsock_shutdown() of Linux forgets the end. So a
    // client that has said that it disconnects closes first.
    bool peer_closes_first() const { return family_ == AF_VSOCK; }

    // Completes when the socket is ready, or with an error once it is closed.
    template <typename Handler>
    auto wait(Wait wait, Handler&& handler) {
        return socket_.async_wait(wait == Wait::writable ? Socket::wait_write : Socket::wait_read,
                                  std::forward<Handler>(handler));
    }

    // receive() returns the bytes that have already arrived, and then the end.
    void stop_receiving() noexcept;
    // Closes the descriptor; another process that has the socket continues with it.
    void leave() noexcept;
    int descriptor() { return socket_.native_handle(); }
    bool in_tls() const { return tls_ != nullptr; }
    // Closes both directions, with close_notify as far as the socket takes it. Waits complete with
    // an error.
    void close() noexcept;

 private:
    Socket socket_;
    int family_ = AF_UNSPEC;
    std::unique_ptr<TlsStream> tls_;  // null: plain text
};

}  // namespace gpunbd::server
