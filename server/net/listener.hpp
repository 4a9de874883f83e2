#pragma once

#include <spdlog/common.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "config/options.hpp"
#include "config/origin_cycle.hpp"
#include "server/base/peer.hpp"
#include "server/net/unix_address.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Limits the log lines about failures of accept(), which is called again and again until the system
// has descriptors or memory.
class AcceptFailures {
 public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::minutes interval{1};  // between two lines

    // Counts a failure with that errno. Returns the line to log: the cause, the number of failures
    // since the last line, and the remedy; nullopt: the last line is recent.
    std::optional<std::string> text(int error, Clock::time_point now);

 private:
    std::optional<Clock::time_point> logged_at_;
    std::uint64_t omitted_ = 0;
};

// True if the socket listens.
bool is_listening(int fd);

// A listening socket. Accepts while it exists and continues after every error of accept().
class Listener {
 public:
    // Called with each accepted connection.
    using OnAccept = std::function<void(OwnedFd fd, Peer peer)>;

    // Throws AddressError if the address cannot be used.
    static std::unique_ptr<Listener> tcp(boost::asio::io_context& io,
                                         const config::TcpListener& options);
    // `leave_file`: the socket outlives this process, so its file must stay.
    static std::unique_ptr<Listener> unix_socket(boost::asio::io_context& io,
                                                 const config::UnixListener& options,
                                                 bool leave_file = false);
    static std::unique_ptr<Listener> vsock(boost::asio::io_context& io,
                                           const config::VsockListener& options);
    // Takes a socket that listens already, from systemd for example. Throws std::runtime_error.
    static std::unique_ptr<Listener> inherited(boost::asio::io_context& io, OwnedFd fd);
    // Takes the socket of an earlier server at that address.
    static std::unique_ptr<Listener> taken_over(boost::asio::io_context& io, OwnedFd fd,
                                                const std::string& where);

    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    const std::string& where() const { return where_; }
    int descriptor() { return socket_.native_handle(); }
    // Logs `line` at `level`, or the address if there is no line.
    void start(OnAccept on_accept, std::string line = {},
               spdlog::level::level_enum level = spdlog::level::info);
    void stop() noexcept;
    // Connections wait in the backlog meanwhile.
    void pause() noexcept;
    void resume() noexcept;
    // The NBD URI for a client on this machine; none if URIs cannot express the address.
    std::optional<std::string> uri(const std::string& export_name, bool tls);
    // The address, if other machines can reach it: TCP and not loopback.
    std::optional<std::string> public_address();
    // Adds the address, unless it is one of vsock.
    void add_to(config::ServerAddresses& all);

 private:
    Listener(boost::asio::io_context& io, OwnedFd fd, std::string where, SocketFile file);
    void wait_for_client() noexcept;
    void accept() noexcept;
    // Handlers of waits call this, unless the listener has been destroyed.
    auto then(void (Listener::*next)() noexcept) {
        return [self = std::weak_ptr(self_), next](boost::system::error_code error) {
            const auto alive = self.lock();
            if (alive && !error) ((*alive)->*next)();
        };
    }
    // false: the system is out of descriptors or memory.
    bool accept_one();
    void accept_later();

    boost::asio::posix::stream_descriptor socket_;
    boost::asio::steady_timer timer_;
    std::string where_;
    SocketFile file_;  // empty if another process created the socket
    OnAccept on_accept_;
    AcceptFailures failures_;
    bool pausing_ = false;
    // Lets handlers that run late detect that the listener has been destroyed.
    std::shared_ptr<Listener*> self_ = std::make_shared<Listener*>(this);
};

}  // namespace gpunbd::server
