// The one way in which a session reads and writes: gathered, never blocking, with a wait for each
// direction. TLS will stand behind the same five calls.
#pragma once

#include <sys/uio.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstddef>
#include <span>
#include <string>

namespace gpunbd::server {

using Socket = boost::asio::generic::stream_protocol::socket;

class Stream {
 public:
    // The socket has been accepted and belongs to the worker's io_context.
    explicit Stream(Socket socket);

    struct Result {
        std::size_t bytes = 0;
        bool would_block = false;
        bool ended = false;  // the peer has closed, or an error: errno in `error`
        int error = 0;
    };
    Result receive(std::span<iovec> into);
    Result send(std::span<iovec> from);

    // Completes when receive() (send()) has something to do again.
    template <typename Handler>
    auto wait_readable(Handler&& handler) {
        return socket_.async_wait(Socket::wait_read, std::forward<Handler>(handler));
    }
    template <typename Handler>
    auto wait_writable(Handler&& handler) {
        return socket_.async_wait(Socket::wait_write, std::forward<Handler>(handler));
    }

    // receive() finds the end once it has taken what is there already.
    void stop_receiving() noexcept;
    // Ends both directions; waits complete with an error.
    void close() noexcept;
    bool is_open() const { return socket_.is_open(); }
    const std::string& peer() const { return peer_; }

 private:
    Socket socket_;
    std::string peer_;
};

}  // namespace gpunbd::server
