#include "server/admin/http/connection.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <ctime>
#include <utility>

#include "config/network.hpp"
#include "server/connection/line_limit.hpp"

namespace gpunbd::server::admin {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

using Stream = beast::basic_stream<asio::generic::stream_protocol>;
using Parser = http::request_parser<http::string_body>;

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t first_read = 4096;          // bytes
constexpr std::size_t max_left_over = 256 << 10;  // bytes of a refused request that are read
constexpr auto farewell = std::chrono::seconds(1);

// "127.0.0.1:9000", "[::1]:9000"
std::string local_address(int fd) {
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

std::string http_date() {
    return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

// Unset where there is none, or where it is not known which of several counts.
template <class Fields>
std::optional<std::string> only(const Fields& fields, http::field name) {
    if (fields.count(name) != 1) return std::nullopt;
    return text_of(fields[name]);
}

// Of several the one that is refused anyway.
template <class Fields>
std::optional<std::string> any(const Fields& fields, http::field name) {
    if (fields.count(name) > 1) return "";
    return only(fields, name);
}

Method method_of(http::verb verb) {
    switch (verb) {
        case http::verb::get:
            return Method::get;
        case http::verb::head:
            return Method::head;
        case http::verb::post:
            return Method::post;
        default:
            return Method::other;
    }
}

Request plain(http::request<http::string_body>&& given) {
    Request request;
    request.method = method_of(given.method());
    request.target = text_of(given.target());
    request.host = only(given, http::field::host);
    request.origin = any(given, http::field::origin);
    request.authorization = any(given, http::field::authorization);
    const auto site = given.find("Sec-Fetch-Site");
    if (site != given.end()) request.fetch_site = text_of(site->value());
    request.content_type = text_of(given[http::field::content_type]);
    request.accept = text_of(given[http::field::accept]);
    request.body = std::move(given.body());
    return request;
}

template <class Body>
http::response<Body> head_of(const Answer& answer, bool keep_alive) {
    http::response<Body> out(http::int_to_status(answer.status), 11);
    out.set(http::field::date, http_date());
    out.set(http::field::content_type, answer.type);
    out.set(http::field::cache_control, "no-store");
    out.set("X-Content-Type-Options", "nosniff");
    out.set("Referrer-Policy", "no-referrer");
    out.set("Cross-Origin-Resource-Policy", "same-origin");
    for (const Field& each : answer.fields) out.set(each.name, each.value);
    out.keep_alive(keep_alive);
    return out;
}

Answer refusal_of(const beast::error_code& error, const Limits& limits) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
        return refusal(431,
                       fmt::format("the header of a request has at most {} bytes", limits.header));
    }
    if (error == http::error::body_limit) {
        return refusal(413, fmt::format("the body of a request has at most {} bytes", limits.body));
    }
    return refusal(400, fmt::format("this is no request of HTTP/1.1: {}", error.message()));
}

bool is_of_http(const beast::error_code& error) {
    return error.category() == make_error_code(http::error::bad_method).category() &&
           error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

struct Connection::Socket {
    Socket(asio::io_context& io, int fd)
        : news(io), stream(asio::generic::stream_protocol::socket(io, protocol_of(fd), fd)) {}

    static asio::generic::stream_protocol protocol_of(int fd) {
        int family = AF_UNIX;
        socklen_t length = sizeof family;
        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
        return {family, 0};
    }

    using Self = std::shared_ptr<Connection>;

    static asio::awaitable<void> run(Self self) {
        Socket& socket = *self->socket_;
        if (!socket.tls) {
            co_await serve(self, &socket.stream);
            co_return;
        }
        socket.stream.expires_after(self->limits_.request);
        const auto [error] =
            co_await socket.tls->async_handshake(asio::ssl::stream_base::server, as_result);
        if (error) {
            ClientLine(spdlog::level::info)
                .with("peer", self->peer_.text())
                .say("{}: admin endpoint: no TLS: {}", self->peer_.text(), error.message());
            co_return;
        }
        co_await serve(self, &*socket.tls);
        socket.stream.expires_after(farewell);
        static_cast<void>(co_await socket.tls->async_shutdown(as_result));
    }

    // Until the client has gone, or is not to have another answer.
    template <class Any>
    static asio::awaitable<void> serve(Self self, Any* stream) {
        const Limits& limits = self->limits_;
        beast::flat_buffer buffer(limits.header + limits.body);
        auto patience = limits.request;
        for (;;) {
            self->waits_since_ = Clock::now();
            if (buffer.size() == 0) {
                self->socket_->stream.expires_after(patience);
                const auto [error, length] = co_await stream->async_read_some(
                    buffer.prepare(std::min(first_read, buffer.max_size())), as_result);
                if (error) co_return;
                buffer.commit(length);
            }
            patience = limits.idle;
            self->socket_->stream.expires_after(limits.request);
            Parser parser;
            parser.header_limit(static_cast<std::uint32_t>(limits.header));
            parser.body_limit(limits.body);
            const auto [error, length] =
                co_await http::async_read(*stream, buffer, parser, as_result);
            self->waits_since_.reset();
            if (error) {
                if (is_of_http(error)) {
                    co_await send(self, stream, refusal_of(error, limits), false, false);
                    co_await leave(self);
                }
                co_return;
            }
            const bool keep_alive = parser.get().keep_alive();
            const Request request = plain(parser.release());
            Answer answer = self->house_.answer(request, *self);
            const bool only_head = request.method == Method::head;
            if (answer.stream && !only_head) {
                co_await send_ticks(self, stream, std::move(answer));
                co_return;
            }
            if (!co_await send(self, stream, std::move(answer), keep_alive, only_head)) co_return;
            if (!keep_alive) co_return co_await leave(self);
        }
    }

    template <class Any>
    static asio::awaitable<bool> send(Self self, Any* stream, Answer answer, bool keep_alive,
                                      bool only_head) {
        self->socket_->stream.expires_after(self->limits_.request);
        if (only_head) {
            auto response = head_of<http::empty_body>(answer, keep_alive);
            if (!answer.stream) response.content_length(answer.body.size());
            const auto [error, length] = co_await http::async_write(*stream, response, as_result);
            co_return !error;
        }
        auto response = head_of<http::string_body>(answer, keep_alive);
        response.body() = std::move(answer.body);
        response.prepare_payload();
        const auto [error, length] = co_await http::async_write(*stream, response, as_result);
        co_return !error;
    }

    template <class Any>
    static asio::awaitable<void> send_ticks(Self self, Any* stream, Answer answer) {
        Connection& own = *self;
        if (!own.house_.begin_stream(own)) {
            const std::string why = fmt::format(
                "{} streams are being sent, and more there are not; end one", own.limits_.streams);
            co_await send(self, stream, refusal(503, why), false, false);
            co_return co_await leave(self);
        }
        own.socket_->stream.expires_after(own.limits_.request);
        const auto head = head_of<http::empty_body>(answer, false);
        http::response_serializer<http::empty_body, http::fields> serializer(head);
        const auto [error, length] =
            co_await http::async_write_header(*stream, serializer, as_result);
        std::uint64_t seen = own.house_.last_event();
        beast::error_code failed = error;
        while (!failed) {
            const auto tick = own.house_.tick(seen);
            if (tick) {
                own.socket_->stream.expires_after(own.limits_.idle);
                const auto [wrong, sent] =
                    co_await asio::async_write(*stream, asio::buffer(*tick), as_result);
                failed = wrong;
                if (failed) break;
            }
            own.socket_->news.expires_at(std::chrono::steady_clock::time_point::max());
            static_cast<void>(co_await own.socket_->news.async_wait(as_result));
            if (!own.socket_->stream.socket().is_open()) break;
        }
    }

    // What the client has still sent is read, so that the system lets it have the answer.
    static asio::awaitable<void> leave(Self self) {
        Stream& stream = self->socket_->stream;
        if (self->socket_->tls) co_return;  // closes by its own rules
        beast::error_code ignored;
        stream.socket().shutdown(asio::socket_base::shutdown_send, ignored);
        stream.expires_after(farewell);
        std::string left_over(first_read, '\0');
        for (std::size_t all = 0; all < max_left_over;) {
            const auto [error, length] =
                co_await stream.async_read_some(asio::buffer(left_over), as_result);
            if (error) co_return;
            all += length;
        }
    }

    asio::steady_timer news;  // cut short by each
    Stream stream;
    std::optional<asio::ssl::stream<Stream&>> tls;
};

Connection::Connection(asio::io_context& io, OwnedFd socket, Peer peer, std::size_t door,
                       ssl_ctx_st* tls, House& house, const Limits& limits)
    : socket_(std::make_unique<Socket>(io, socket.get())),
      peer_(std::move(peer)),
      door_(door),
      reached_(local_address(socket.release())),
      house_(house),
      limits_(limits) {
    if (tls == nullptr) return;
    ::SSL_CTX_up_ref(tls);
    asio::ssl::context context(tls);  // takes it
    socket_->tls.emplace(socket_->stream, context);
}

Connection::~Connection() {
    house_.end_stream(*this);
    house_.ended(*this);
}

void Connection::start() {
    asio::co_spawn(socket_->stream.get_executor(), Socket::run(shared_from_this()),
                   [](const std::exception_ptr& failure) {
                       if (!failure) return;
                       try {
                           std::rethrow_exception(failure);
                       } catch (const std::exception& error) {
                           ClientLine(spdlog::level::err)
                               .with("error", error.what())
                               .say("admin endpoint: a request is lost: {}", error.what());
                       }
                   });
}

void Connection::wake() { socket_->news.cancel(); }

void Connection::cut() noexcept {
    beast::error_code ignored;
    socket_->stream.socket().close(ignored);
    try {
        socket_->news.cancel();
    } catch (const std::exception&) {
        // It ends with the next tick.
    }
}

}  // namespace gpunbd::server::admin
