#include "server/admin/endpoint.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <set>
#include <thread>
#include <utility>

#include "server/admin/api/api.hpp"
#include "server/admin/api/page.hpp"
#include "server/admin/api/query.hpp"
#include "server/admin/history/history.hpp"
#include "server/admin/http/connection.hpp"
#include "server/admin/stream/ticks.hpp"
#include "server/connection/line_limit.hpp"
#include "server/listening/listener.hpp"
#include "server/listening/tcp_address.hpp"
#include "server/process/privileges.hpp"
#include "storage/signals_blocked.hpp"

namespace gpunbd::server::admin {

namespace asio = boost::asio;

namespace {

constexpr auto second = std::chrono::seconds(1);

// For whom nothing of the library is there yet.
std::string too_many_connections() {
    const Answer answer = refusal(503, "too many connections are busy; try again later");
    return fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        answer.type, answer.body.size(), answer.body);
}

}  // namespace

class Endpoint::Running final : public Connection::House {
 public:
    Running(ObservedServer& server, std::shared_ptr<const EventLog> events, const Limits& limits)
        : limits_(limits),
          server_(server),
          events_(std::move(events)),
          ticks_(*events_),
          api_(server, history_, *events_),
          io_(1),
          timer_(io_) {}

    ~Running() = default;
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    void open(std::unique_ptr<Listener> listener, bool known, Door door,
              std::shared_ptr<const TlsContext> tls) {
        listeners_.push_back(std::move(listener));
        doors_.push_back({.known = known, .door = std::move(door), .tls = std::move(tls)});
    }
    void renew_tls(const std::shared_ptr<const TlsContext>& tls) {
        for (OpenDoor& each : doors_) {
            if (each.tls) each.tls = tls;
        }
    }
    bool listens() const { return !listeners_.empty(); }
    asio::io_context& io() { return io_; }

    void start() {
        for (std::size_t i = 0; i != listeners_.size(); ++i) {
            listeners_[i]->start(
                [this, i](int fd, Peer peer) { accepted(OwnedFd(fd), std::move(peer), i); },
                "admin endpoint:", doors_[i].known ? spdlog::level::debug : spdlog::level::info);
        }
        look(std::chrono::steady_clock::now());
        const storage::SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    }

    // Before the destructor, which no other thread may be in a call of.
    void stop() {
        io_.stop();
        if (thread_.joinable()) thread_.join();
        listeners_.clear();
    }

    Answer answer(const Request& request, const Connection& from) override {
        const Door& door = doors_[from.door()].door;
        if (auto refused = refuse_site(request, door, from.reached())) return std::move(*refused);
        const bool page = page_at(split_target(request.target).path).has_value();
        if (!page) {
            if (auto refused = refuse_stranger(request, door)) return std::move(*refused);
        }
        Answer answer = api_.answer(request);
        if (!answer.done.empty()) {
            storage::LogLine(spdlog::level::info)
                .with("peer", from.peer().text())
                .say("{}: admin endpoint: {}", from.peer().text(), answer.done);
        }
        return answer;
    }

    bool begin_stream(Connection& to) override {
        if (streams_.size() >= limits_.streams) return false;
        streams_.insert(&to);
        return true;
    }
    std::optional<std::string> tick(std::uint64_t& seen) override { return ticks_.tick(seen); }
    std::uint64_t last_event() const override { return ticks_.last_event(); }
    void end_stream(Connection& to) noexcept override { streams_.erase(&to); }
    void ended(Connection& connection) noexcept override { connections_.erase(&connection); }

 private:
    struct OpenDoor {
        bool known = false;  // where it is
        Door door;
        std::shared_ptr<const TlsContext> tls;
    };

    void run() {
        ::pthread_setname_np(::pthread_self(), "admin");
        give_up_new_privileges();  // it may be older than the process's own decision
        for (;;) {
            try {
                io_.run();
                return;
            } catch (const std::exception& error) {
                spdlog::error("admin endpoint: an event was lost: {}", error.what());
            }
        }
    }

    // Each second, whoever watches.
    void look(std::chrono::steady_clock::time_point when) {
        timer_.expires_at(when);
        timer_.async_wait([this, when](boost::system::error_code error) {
            if (error) return;
            const auto next = std::max(when + second, std::chrono::steady_clock::now());
            look(next);
            const Status status = server_.status();
            history_.sample(status);
            ticks_.set(status);
            for (Connection* const each : streams_) each->wake();
        });
    }

    void accepted(OwnedFd fd, Peer peer, std::size_t door) {
        try {
            if (connections_.size() >= limits_.connections && !make_room()) {
                if (!doors_[door].tls) {
                    const std::string text = too_many_connections();
                    static_cast<void>(
                        ::send(fd.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
                }
                return;
            }
            const auto& tls = doors_[door].tls;
            const auto connection =
                std::make_shared<Connection>(io_, std::move(fd), std::move(peer), door,
                                             tls ? &tls->native() : nullptr, *this, limits_);
            connections_.insert(connection.get());
            connection->start();
        } catch (const std::exception& error) {
            if (client_lines().take()) {
                spdlog::error("admin endpoint: a connection is lost: {}", error.what());
            }
        }
    }

    // Whoever has asked nothing for longest.
    bool make_room() {
        Connection* longest = nullptr;
        for (Connection* const each : connections_) {
            if (!each->waits_since()) continue;
            if (longest == nullptr || each->waits_since() < longest->waits_since()) longest = each;
        }
        if (longest == nullptr) return false;
        longest->cut();
        connections_.erase(longest);
        return true;
    }

    const Limits limits_;
    ObservedServer& server_;
    const std::shared_ptr<const EventLog> events_;
    History history_;
    Ticks ticks_;
    const Api api_;
    std::vector<OpenDoor> doors_;
    std::set<Connection*> connections_;
    std::set<Connection*> streams_;
    asio::io_context io_;  // its connections end before what they ask
    asio::steady_timer timer_;
    std::vector<std::unique_ptr<Listener>> listeners_;
    std::thread thread_;
};

Endpoint::Endpoint(ObservedServer& server, std::shared_ptr<const EventLog> events,
                   const Limits& limits)
    : running_(std::make_unique<Running>(server, std::move(events), limits)) {}

Endpoint::~Endpoint() { running_->stop(); }

void Endpoint::open_unix(const std::string& path, bool known) {
    config::UnixListener options;
    options.path = path;
    options.mode = 0600;
    running_->open(Listener::unix_socket(running_->io(), options), known, Door{}, nullptr);
}

void Endpoint::open_tcp(const config::TcpListener& address, Door door,
                        std::shared_ptr<const TlsContext> tls) {
    door.tcp = true;
    door.tls = tls != nullptr;
    door.authority = name_of(address);
    running_->open(Listener::tcp(running_->io(), address), false, std::move(door), std::move(tls));
}

void Endpoint::renew_tls(std::shared_ptr<const TlsContext> tls) {
    asio::post(running_->io(), [this, tls = std::move(tls)] { running_->renew_tls(tls); });
}

bool Endpoint::listens() const { return running_->listens(); }

void Endpoint::start() { running_->start(); }

}  // namespace gpunbd::server::admin
