#include "server/process/keeping_socket.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <set>
#include <utility>

#include "server/connection/line_limit.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::server {

namespace {

namespace asio = boost::asio;

constexpr auto answer_again_after = std::chrono::milliseconds(20);

config::UnixListener for_its_user(const std::string& path) {
    config::UnixListener options;
    options.path = path;
    options.mode = 0600;
    return options;
}

}  // namespace

// What askers have of the socket; they end on their own, but not after it.
struct KeepingSocket::Shared {
    Answer answer;
    const KeepingLimits limits;
    std::set<Asker*> askers = {};
};

struct KeepingSocket::Asker : std::enable_shared_from_this<Asker> {
    Asker(asio::io_context& io, std::shared_ptr<Shared> shared)
        : socket(io), deadline(io), pause(io), of(std::move(shared)) {
        of->askers.insert(this);
    }
    ~Asker() { of->askers.erase(this); }
    Asker(const Asker&) = delete;
    Asker& operator=(const Asker&) = delete;

    void begin() {
        deadline.expires_after(of->limits.time);
        deadline.async_wait([self = weak_from_this()](boost::system::error_code error) {
            const auto alive = self.lock();
            if (alive && !error) alive->end();
        });
        asio::async_read_until(
            socket, asio::dynamic_buffer(text, of->limits.request), '\n',
            [self = shared_from_this()](boost::system::error_code error, std::size_t length) {
                if (error) return self->end();
                self->text.resize(length - 1);
                self->try_answer();
            });
    }

    void try_answer() {
        if (!socket.is_open()) return;
        if (auto answered = of->answer(text)) {
            text = std::move(*answered) + '\n';
            return send();
        }
        pause.expires_after(answer_again_after);
        pause.async_wait([self = shared_from_this()](boost::system::error_code error) {
            if (!error) self->try_answer();
        });
    }

    void send() {
        asio::async_write(
            socket, asio::buffer(text),
            [self = shared_from_this()](boost::system::error_code, std::size_t) { self->end(); });
    }

    void end() {
        boost::system::error_code ignored;
        socket.close(ignored);
        deadline.cancel();
        pause.cancel();
    }

    asio::local::stream_protocol::socket socket;
    asio::steady_timer deadline;
    asio::steady_timer pause;
    std::string text;  // the request, then the answer
    const std::shared_ptr<Shared> of;
};

KeepingSocket::KeepingSocket(asio::io_context& io, const std::string& path, Answer answer,
                             const KeepingLimits& limits)
    : io_(io),
      shared_(std::make_shared<Shared>(Shared{std::move(answer), limits})),
      listener_(Listener::unix_socket(io, for_its_user(path))) {
    listener_->start([this](int fd, const Peer& peer) { accepted(fd, peer); });
}

KeepingSocket::~KeepingSocket() {
    for (Asker* const each : shared_->askers) each->end();
}

// Takes the descriptor, whatever happens.
void KeepingSocket::accepted(int fd, const Peer& peer) {
    OwnedFd owned(fd);
    const bool may =
        peer.kind == Peer::Kind::unix_socket && (peer.uid == ::geteuid() || peer.uid == 0);
    if (!may || shared_->askers.size() >= shared_->limits.askers) {
        if (client_lines().take()) {
            spdlog::warn("{}: may not ask what is kept{}", peer.text(),
                         may ? " while so many do" : "");
        }
        return;
    }
    try {
        const auto asker = std::make_shared<Asker>(io_, shared_);
        asker->socket.assign(asio::local::stream_protocol(), owned.release());
        asker->begin();
    } catch (const std::exception& error) {
        if (client_lines().take()) spdlog::error("{}: not answered: {}", peer.text(), error.what());
    }
}

}  // namespace gpunbd::server
