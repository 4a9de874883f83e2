#include "server/admin/http/connection.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <map>
#include <utility>

#include "config/network.hpp"
#include "server/admin/http/message.hpp"
#include "server/admin/http/request_parser.hpp"
#include "server/admin/http/stream.hpp"
#include "server/base/line_limit.hpp"
#include "server/net/connection_slots.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server::admin {

namespace {

std::size_t count_of(const std::set<Connection*>& connections, const std::string& client) {
    return static_cast<std::size_t>(
        std::count_if(connections.begin(), connections.end(),
                      [&](const Connection* each) { return each->client() == client; }));
}

std::string client_with_most(const std::set<Connection*>& connections) {
    std::map<std::string, std::size_t> counts;
    for (const Connection* const each : connections) ++counts[each->client()];
    GPUNBD_ASSERT(!counts.empty(), "the limit of connections is at least one");
    return std::max_element(counts.begin(), counts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
}

}  // namespace

namespace asio = boost::asio;

namespace {

constexpr std::size_t read_size = 4096;  // bytes

// "127.0.0.1:9000", "[::1]:9000"
std::string local_address_of(int fd) {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return {};
    if (bound.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(bound);
        config::IpAddress address;
        std::copy_n(reinterpret_cast<const std::uint8_t*>(&in.sin_addr), sizeof in.sin_addr,
                    address.bytes.begin());
        return fmt::format("{}:{}", address.text(), ntohs(in.sin_port));
    }
    if (bound.ss_family != AF_INET6) return {};
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(bound);
    config::IpAddress address;
    address.v6 = true;
    std::copy_n(reinterpret_cast<const std::uint8_t*>(&in6.sin6_addr), sizeof in6.sin6_addr,
                address.bytes.begin());
    return fmt::format("[{}]:{}", address.text(), ntohs(in6.sin6_port));
}

void log_failure(const std::exception_ptr& failure) {
    if (!failure) return;
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        ClientLine(spdlog::level::err)
            .with("error", error.what())
            .log("admin endpoint: failed to handle a request: {}", error.what());
    }
}

}  // namespace

std::string client_key(const Peer& peer) {
    if (peer.kind == Peer::Kind::tcp) {
        const auto address = config::parse_ip(peer.address);
        if (address && address->loopback()) return "loopback";
    }
    return peer_key(peer);
}

Connection::Connection(asio::io_context& io, OwnedFd socket, Peer peer, std::size_t listener,
                       std::shared_ptr<const TlsContext> tls, RequestHandler& handler,
                       const Limits& limits)
    : peer_(std::move(peer)),
      client_(client_key(peer_)),
      listener_(listener),
      local_address_(local_address_of(socket.get())),
      handler_(handler),
      limits_(limits),
      stream_(std::make_shared<Stream>(io, std::move(socket), std::move(tls))),
      wake_up_(io),
      patience_(limits.request) {}

Connection::~Connection() {
    handler_.end_stream(*this);
    handler_.remove(*this);
}

void Connection::start() {
    asio::co_spawn(stream_->executor(), run(shared_from_this()), log_failure);
}

asio::awaitable<void> Connection::run(Self self) {
    self->stream_->expires_after(self->limits_.request);
    const std::string failure = co_await self->stream_->handshake();
    if (failure.empty()) {
        co_await self->serve();
    } else {
        ClientLine(spdlog::level::info)
            .with("peer", self->peer_.text())
            .log("{}: admin endpoint: TLS handshake failed: {}", self->peer_.text(), failure);
    }
    self->stream_->close();
}

// Returns at the client's end, or after the last response.
asio::awaitable<void> Connection::serve() {
    for (;;) {
        bool keep_alive = false;
        std::optional<Request> request = co_await read_request(keep_alive);
        if (!request) co_return;
        const bool head_only = request->method == Method::head;
        Response response = handler_.respond(std::move(*request), *this);
        if (response.operation) response = co_await await_outcome(std::move(response));
        if (response.stream && !head_only) {
            co_await send_ticks(std::move(response));
            co_return;
        }
        keep_alive = keep_alive && !ending_;
        const bool sent = co_await send(std::move(response), keep_alive, head_only);
        if (!sent || ending_) co_return;
        if (!keep_alive) co_return co_await stream_->linger();
    }
}

// Returns nothing if the connection has ended or an error response was sent.
asio::awaitable<std::optional<Request>> Connection::read_request(bool& keep_alive) {
    RequestParser parser(limits_);
    idle_since_ = Clock::now();
    stream_->expires_after(received_.empty() ? patience_ : limits_.request);
    bool begun = !received_.empty();
    patience_ = limits_.idle;
    for (;;) {
        received_.erase(0, parser.parse(received_));
        if (parser.error()) {
            co_await send_error_and_linger(*parser.error());
            co_return std::nullopt;
        }
        if (parser.done()) break;
        const std::size_t unparsed = received_.size();
        received_.resize(unparsed + read_size);
        const std::size_t length =
            co_await stream_->read_some(std::span(received_).subspan(unparsed));
        received_.resize(unparsed + length);
        if (length == 0) co_return std::nullopt;
        if (!std::exchange(begun, true)) stream_->expires_after(limits_.request);
    }
    keep_alive = parser.keep_alive();
    co_return parser.take();
}

asio::awaitable<Response> Connection::await_outcome(Response pending) {
    const auto until = Clock::now() + (pending.takes_long ? limits_.long_outcome : limits_.outcome);
    GPUNBD_ASSERT(!awaits_outcome_, "a connection has one operation at a time");
    outcome_.reset();
    ++operation_;
    awaits_outcome_ = true;
    idle_since_.reset();
    handler_.start_operation(pending.operation, *this);
    while (!outcome_ && Clock::now() < until) {
        wake_up_.expires_at(until);
        static_cast<void>(co_await wake_up_.async_wait(as_result));
    }
    awaits_outcome_ = false;
    idle_since_ = Clock::now();
    if (outcome_) co_return *std::move(outcome_);
    co_return error_response(
        503, "the server is busy; check whether the change was made, and try again");
}

asio::awaitable<bool> Connection::send(Response response, bool keep_alive, bool head_only) {
    stream_->expires_after(limits_.request);
    std::optional<std::size_t> length;
    if (!response.stream) length = response.body.size();
    std::string bytes = response_header(response, keep_alive, length);
    if (!head_only) bytes += response.body;
    co_return co_await stream_->write(bytes);
}

asio::awaitable<void> Connection::send_error_and_linger(Response response) {
    co_await send(std::move(response), false, false);
    co_await stream_->linger();
}

asio::awaitable<void> Connection::send_ticks(Response response) {
    if (!handler_.begin_stream(*this)) {
        co_return co_await send_error_and_linger(error_response(
            503, fmt::format("too many streams; the limits are {} in total and {} per client; "
                             "close a stream, or poll /api/v1/status",
                             limits_.streams, limits_.streams_of_client)));
    }
    GPUNBD_ASSERT(!awaits_outcome_, "a connection streams when no operation is in progress");
    idle_since_.reset();
    bool sent = co_await send(std::move(response), false, true);
    std::uint64_t seen = handler_.last_event();
    while (sent && stream_->is_open()) {
        const auto tick = handler_.tick(seen);
        if (tick) {
            stream_->expires_after(limits_.idle);
            sent = co_await stream_->write(*tick);
            if (!sent) break;
        }
        wake_up_.expires_at(Clock::time_point::max());
        static_cast<void>(co_await wake_up_.async_wait(as_result));
    }
}

void Connection::wake() { wake_up_.cancel(); }

void Connection::complete(std::uint64_t operation, Response outcome) {
    if (!awaits_outcome_ || outcome_ || operation != operation_) return;
    outcome_ = std::move(outcome);
    wake_up_.cancel();
}

void Connection::complete_and_end(Response outcome) {
    ending_ = true;
    complete(operation_, std::move(outcome));
}

void Connection::close() noexcept {
    stream_->close();
    try {
        wake_up_.cancel();
    } catch (const std::exception&) {
        // A stream ends with its next tick.
    }
}

bool ConnectionPool::make_room(const std::string& client) {
    if (count_of(connections_, client) >= limits_.connections_of_client)
        return close_oldest(client);
    if (connections_.size() < limits_.connections) return true;
    return close_oldest(client_with_most(connections_));
}

bool ConnectionPool::add_stream(Connection& connection) {
    if (streams_.size() >= limits_.streams ||
        count_of(streams_, connection.client()) >= limits_.streams_of_client) {
        return false;
    }
    GPUNBD_ASSERT(!streams_.contains(&connection), "a connection has one stream");
    streams_.insert(&connection);
    return true;
}

// Streams and connections that wait for an outcome are not idle: they wait for the server.
bool ConnectionPool::close_oldest(const std::string& client) {
    Connection* oldest = nullptr;
    for (Connection* const each : connections_) {
        if (each->client() != client || !each->idle_since()) continue;
        if (oldest == nullptr || each->idle_since() < oldest->idle_since()) oldest = each;
    }
    if (oldest == nullptr) return false;
    oldest->close();
    connections_.erase(oldest);
    return true;
}

}  // namespace gpunbd::server::admin
