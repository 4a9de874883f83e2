// Bytes in and out over one peer: gathered, never blocking. Whoever finds that nothing moves is
// told in which direction to wait; TLS will stand behind the same calls.
#pragma once

#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace gpunbd::server {

using Socket = boost::asio::generic::stream_protocol::socket;

class Transport {
 public:
    // The socket has been accepted and belongs to the worker's io_context.
    explicit Transport(Socket socket);

    enum class Wait : std::uint8_t { none, readable, writable };
    struct Result {
        std::size_t bytes = 0;
        Wait wait = Wait::none;  // nothing moved; before this there is no use in trying again
        bool ended = false;      // the peer has closed, or an error: errno in `error`
        int error = 0;
    };
    Result receive(std::span<iovec> into);
    Result send(std::span<iovec> from);
    // Are there bytes inside, so that receive() has some though the socket may have none? Records
    // that were taken off a socket as a whole would be such.
    bool pending() const { return false; }

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
    // Ends both directions; waits complete with an error.
    void close() noexcept;

 private:
    Socket socket_;
};

}  // namespace gpunbd::server
