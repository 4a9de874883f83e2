// Bytes in and out over one peer: gathered, never blocking. Whoever finds that nothing moves is
// told in which direction to wait. TLS stands behind the same calls.
#pragma once

#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
    // The socket has been accepted and belongs to the worker's io_context.
    explicit Transport(Socket socket);
    ~Transport();

    enum class Wait : std::uint8_t { none, readable, writable };
    struct Result {
        std::size_t bytes = 0;
        Wait wait = Wait::none;  // nothing moved; before this there is no use in trying again
        bool ended = false;      // the peer has closed, or an error: errno in `error`
        int error = 0;
    };
    Result receive(std::span<iovec> into);
    Result send(std::span<iovec> from);
    // The same of any socket, and in the clear.
    static Result receive_from(int fd, std::span<iovec> into);
    static Result send_to(int fd, std::span<iovec> from);
    // May there be bytes inside, so that receive() has some though the socket has none? Records of
    // TLS are taken off it many at once.
    bool pending() const;

    // From here on all that passes is TLS, beginning with its handshake. `buffers` outlives it.
    TlsStream& start_tls(std::shared_ptr<const TlsContext> context, Pool<ReceiveBuffer>& buffers);
    // Nothing is expected for a while: gives back memory that it can do without.
    void rest() noexcept;
    std::size_t memory() const;  // bytes

    // When nothing passes for half of `limit` the peer is asked whether it is there, again and
    // again. false: not over TCP, where the kernel knows.
    bool ask_whether_there(std::chrono::seconds limit) noexcept;
    // For so long at least TCP has sent something again, and heard nothing.
    bool silent_for(std::chrono::milliseconds time) noexcept;

    // Nobody is there any more, neither to send nor to take answers; what was sent may not have
    // been received yet. TCP may not know it.
    bool hung_up() noexcept;

    // Completes when the socket is so, or with an error once it is closed.
    template <typename Handler>
    auto wait(Wait wait, Handler&& handler) {
        return socket_.async_wait(wait == Wait::writable ? Socket::wait_write : Socket::wait_read,
                                  std::forward<Handler>(handler));
    }

    // receive() finds the end once it has taken what is there already.
    void stop_receiving() noexcept;
    // Closes the socket here; whoever has it as well goes on with it.
    void leave() noexcept;
    int descriptor() { return socket_.native_handle(); }
    bool in_tls() const { return tls_ != nullptr; }
    // Ends both directions, telling the peer as far as that needs no waiting; waits complete with
    // an error.
    void close() noexcept;

 private:
    Socket socket_;
    std::unique_ptr<TlsStream> tls_;  // null: in the clear
};

}  // namespace gpunbd::server
