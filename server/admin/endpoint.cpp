#include "server/admin/endpoint.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <utility>

#include "server/admin/api/api.hpp"
#include "server/admin/api/body.hpp"
#include "server/admin/api/page.hpp"
#include "server/admin/api/ticks.hpp"
#include "server/admin/http/connection.hpp"
#include "server/admin/http/message.hpp"
#include "server/admin/model/history.hpp"
#include "server/base/line_limit.hpp"
#include "server/base/process.hpp"
#include "server/net/listener.hpp"
#include "server/net/tcp_address.hpp"
#include "storage/base/mutex.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server::admin {

// Passes calls from other threads to the thread of the admin endpoint. It may outlive the endpoint:
// later calls are dropped.
class Mailbox {
 public:
    explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

    // Any thread. Never waits for the endpoint's thread.
    template <typename Call>
    void post(Call call) {
        const Lock lock(mutex_);
        if (io_ != nullptr) boost::asio::post(*io_, std::move(call));
    }
    // Before the io_context is destroyed.
    void close() {
        const Lock lock(mutex_);
        io_ = nullptr;
    }

 private:
    Mutex mutex_;
    boost::asio::io_context* io_ GUARDED_BY(mutex_);
};

namespace asio = boost::asio;

namespace {

constexpr auto sample_interval = std::chrono::seconds(1);

config::UnixListener for_this_user(const std::string& path) {
    config::UnixListener options;
    options.path = path;
    options.mode = 0600;
    return options;
}

// For a client that gets no Connection.
std::string too_many_connections() {
    const Response response = error_response(503, "too many connections are busy; try again later");
    return response_header(response, false, response.body.size()) + response.body;
}

}  // namespace

class Endpoint::Running final : public Connection::RequestHandler {
 public:
    Running(AdminBackend& server, std::shared_ptr<const EventLog> events, const Limits& limits)
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

    void open(std::unique_ptr<Listener> listener, bool quiet, EndpointPolicy policy,
              std::shared_ptr<const TlsContext> tls) {
        entries_.push_back({.listener = std::move(listener),
                            .quiet = quiet,
                            .policy = std::move(policy),
                            .tls = std::move(tls),
                            .pool = ConnectionPool(limits_)});
    }
    void renew_tls(const std::shared_ptr<const TlsContext>& tls) {
        for (Entry& each : entries_) {
            if (each.tls) each.tls = tls;
        }
    }
    bool listens() const { return !entries_.empty(); }
    asio::io_context& io() { return io_; }

    void start() {
        for (std::size_t i = 0; i != entries_.size(); ++i) {
            const Entry& entry = entries_[i];
            const EndpointPolicy& policy = entry.policy;
            const std::string address =
                policy.tcp ? fmt::format("http{}://{}/", policy.tls ? "s" : "", policy.authority)
                           : entry.listener->where();
            entry.listener->start(
                [this, i](OwnedFd fd, Peer peer) { accept(std::move(fd), std::move(peer), i); },
                "admin endpoint: " + address,
                entry.quiet ? spdlog::level::debug : spdlog::level::info);
        }
        sample_at(std::chrono::steady_clock::now());
        const storage::SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    }

    // Before stop(), which is the first to use it.
    void set_replaced() { replaced_ = true; }

    // Called once, before the destructor. The thread never waits for another thread, so it ends
    // with its current event. A client that waits for an outcome gets a response if its socket
    // takes it at once; the other connections are closed.
    void stop() {
        io_.stop();
        if (thread_.joinable()) thread_.join();
        mailbox_->close();
        ending_ = true;
        for (Entry& each : entries_) each.listener.reset();
        timer_.cancel();
        try {
            for (const Entry& entry : entries_) {
                for (Connection* const each : entry.pool.connections()) {
                    if (each->awaits_outcome()) {
                        each->complete_and_end(Api::response_to(refusal()));
                    } else {
                        each->close();
                    }
                }
            }
            io_.restart();
            io_.poll();
        } catch (const std::exception& error) {
            spdlog::error("admin endpoint: failed to send some clients the end of the server: {}",
                          error.what());
        }
    }

    Response respond(Request request, const Connection& from) override {
        if (ending_) return Api::response_to(refusal());
        const EndpointPolicy& policy = entries_[from.listener()].policy;
        const bool page = !policy.kept_only && is_page(split_target(request.target).path);
        if (auto refusal = check_site(request, policy, from.local_address(), page)) {
            return std::move(*refusal);
        }
        if (!page) {
            if (auto refusal = check_access(request, policy)) return std::move(*refusal);
        }
        request.read_only_reason = policy.read_only_reason();
        request.owner = !policy.tcp;
        request.peer = from.peer().text();
        Response response = api_.respond(request);
        log_change(response, from.peer().text());
        return response;
    }

    void start_operation(const std::function<void(Completion)>& operation,
                         Connection& from) override {
        operation(
            Completion([mailbox = mailbox_, weak = from.weak_from_this(), number = from.operation(),
                        peer = from.peer().text()](Outcome outcome) {
                mailbox->post([weak, number, peer, outcome = std::move(outcome)] {
                    Response response = Api::response_to(outcome);
                    log_change(response, peer);  // also if the client does not wait for it any more
                    const auto connection = weak.lock();
                    if (connection) connection->complete(number, std::move(response));
                });
            }));
    }

    bool begin_stream(Connection& to) override { return pool_of(to).add_stream(to); }
    std::optional<std::string> tick(std::uint64_t& seen) override { return ticks_.tick(seen); }
    std::uint64_t last_event() const override { return ticks_.last_event(); }
    void end_stream(Connection& to) noexcept override { pool_of(to).remove_stream(to); }
    void remove(Connection& connection) noexcept override {
        pool_of(connection).remove(connection);
    }

 private:
    struct Entry {
        std::unique_ptr<Listener> listener;
        bool quiet = false;  // logs its address only at level debug
        EndpointPolicy policy;
        std::shared_ptr<const TlsContext> tls;  // null: without TLS
        ConnectionPool pool;
    };

    ConnectionPool& pool_of(const Connection& connection) noexcept {
        return entries_[connection.listener()].pool;
    }

    void run() {
        ::pthread_setname_np(::pthread_self(), "admin");
        give_up_new_privileges();  // this thread may have started before the process did so
        for (;;) {
            try {
                io_.run();
                return;
            } catch (const std::exception& error) {
                spdlog::error("admin endpoint: failed to handle an event: {}", error.what());
            }
        }
    }

    static void log_change(const Response& response, const std::string& peer) {
        if (response.change.empty()) return;
        storage::LogLine(spdlog::level::info)
            .with("peer", peer)
            .log("{}: admin endpoint: {}", peer, response.change);
    }

    // Samples the server every second, also without a client: the history needs it.
    void sample_at(std::chrono::steady_clock::time_point when) {
        timer_.expires_at(when);
        timer_.async_wait([this, when](boost::system::error_code error) {
            if (error) return;
            sample_at(std::max(when + sample_interval, std::chrono::steady_clock::now()));
            Status status = server_.status();
            history_.sample(status);
            history_.add_last_second(status);
            ticks_.set(status);
            for (const Entry& entry : entries_) {
                for (Connection* const each : entry.pool.streams()) each->wake();
            }
        });
    }

    void accept(OwnedFd fd, Peer peer, std::size_t listener) {
        try {
            Entry& entry = entries_[listener];
            if (entry.policy.kept_only && peer.uid != ::geteuid() && peer.uid != 0) {
                ClientLine(spdlog::level::warn)
                    .with("peer", peer.text())
                    .log("{}: has no access to kept contents", peer.text());
                return;
            }
            if (!entry.pool.make_room(client_key(peer))) {
                if (!entry.tls) {
                    const std::string text = too_many_connections();
                    static_cast<void>(
                        ::send(fd.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
                }
                return;
            }
            const auto connection = std::make_shared<Connection>(
                io_, std::move(fd), std::move(peer), listener, entry.tls, *this, limits_);
            entry.pool.add(*connection);
            connection->start();
        } catch (const std::exception& error) {
            if (client_lines().take()) {
                spdlog::error("admin endpoint: failed to accept a connection: {}", error.what());
            }
        }
    }

    // Of requests at the end.
    Outcome refusal() const { return replaced_ ? outcome_of_replacement() : outcome_of_ending(); }

    const Limits limits_;
    AdminBackend& server_;
    const std::shared_ptr<const EventLog> events_;
    History history_;
    Ticks ticks_;
    const Api api_;
    std::vector<Entry> entries_;
    bool replaced_ = false;
    bool ending_ = false;
    asio::io_context io_;  // destroys the connections, which use all of the above
    const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>(io_);
    asio::steady_timer timer_;
    std::thread thread_;
};

Endpoint::Endpoint(AdminBackend& server, std::shared_ptr<const EventLog> events,
                   const Limits& limits)
    : running_(std::make_unique<Running>(server, std::move(events), limits)) {}

Endpoint::~Endpoint() { running_->stop(); }

void Endpoint::open_unix(const std::string& path, bool quiet) {
    running_->open(Listener::unix_socket(running_->io(), for_this_user(path)), quiet,
                   EndpointPolicy{}, nullptr);
}

void Endpoint::open_kept(const std::string& path) {
    EndpointPolicy policy;
    policy.kept_only = true;
    running_->open(Listener::unix_socket(running_->io(), for_this_user(path)), true,
                   std::move(policy), nullptr);
}

void Endpoint::open_tcp(const config::TcpListener& address, EndpointPolicy policy,
                        std::shared_ptr<const TlsContext> tls) {
    policy.tcp = true;
    policy.tls = tls != nullptr;
    policy.authority = name_of(address);
    running_->open(Listener::tcp(running_->io(), address), false, std::move(policy),
                   std::move(tls));
}

void Endpoint::renew_tls(std::shared_ptr<const TlsContext> tls) {
    asio::post(running_->io(), [this, tls = std::move(tls)] { running_->renew_tls(tls); });
}

bool Endpoint::listens() const { return running_->listens(); }

void Endpoint::start() { running_->start(); }

void Endpoint::set_replaced() { running_->set_replaced(); }

}  // namespace gpunbd::server::admin
