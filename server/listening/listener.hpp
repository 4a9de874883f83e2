// A listening socket: accepts for as long as it lives, and survives every error of accept().
#pragma once

#include <spdlog/common.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "config/options.hpp"
#include "server/connection/peer.hpp"
#include "server/listening/socket_file.hpp"

namespace gpunbd::server {

// Does this socket listen?
bool is_listening(int fd);

class Listener {
 public:
    // Takes the file descriptor of an accepted connection, and owns it from then on.
    using OnAccept = std::function<void(int fd, Peer peer)>;

    // Each throws AddressError where the address cannot be had.
    static std::unique_ptr<Listener> tcp(boost::asio::io_context& io,
                                         const config::TcpListener& options);
    // `leave_file`: the socket outlives this process, and so does its file.
    static std::unique_ptr<Listener> unix_socket(boost::asio::io_context& io,
                                                 const config::UnixListener& options,
                                                 bool leave_file = false);
    static std::unique_ptr<Listener> vsock(boost::asio::io_context& io,
                                           const config::VsockListener& options);
    // A socket that listens already, from systemd or its like. Throws std::runtime_error.
    static std::unique_ptr<Listener> inherited(boost::asio::io_context& io, int fd);
    // One that an earlier server had at that address. Takes it.
    static std::unique_ptr<Listener> taken_over(boost::asio::io_context& io, int fd,
                                                const std::string& where);

    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    const std::string& where() const { return where_; }
    int descriptor() { return socket_.native_handle(); }
    // Where it listens is logged at `level`, behind what the log calls it.
    void start(OnAccept on_accept, std::string_view as = "listening on",
               spdlog::level::level_enum level = spdlog::level::info);
    void stop() noexcept;
    // Who comes meanwhile waits in the backlog.
    void pause() noexcept;
    void go_on() noexcept;
    // How a client on this machine asks for the export; none where NBD URIs have no form for it.
    std::optional<std::string> uri(const std::string& export_name, bool tls);
    // Where it listens, if other machines can reach that: a TCP address that is not loopback.
    std::optional<std::string> public_address();

 private:
    Listener(boost::asio::io_context& io, int fd, std::string where, SocketFile file);
    void wait_for_client() noexcept;
    void accept() noexcept;
    // What waits calls it then, but not once the listener has gone.
    auto then(void (Listener::*next)() noexcept) {
        return [self = std::weak_ptr(self_), next](boost::system::error_code error) {
            const auto alive = self.lock();
            if (alive && !error) ((*alive)->*next)();
        };
    }
    // False: the system has nothing to accept with for now.
    bool accept_one();
    void accept_later();

    boost::asio::posix::stream_descriptor socket_;
    boost::asio::steady_timer timer_;
    std::string where_;
    SocketFile file_;  // none of a socket that somebody else made
    OnAccept on_accept_;
    bool pausing_ = false;
    // Events that had come when the listener went find that it has.
    std::shared_ptr<Listener*> self_ = std::make_shared<Listener*>(this);
};

}  // namespace gpunbd::server
