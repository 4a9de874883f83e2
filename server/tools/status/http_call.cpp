#include "server/tools/status/http_call.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "server/tools/status/nbd_socket.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

namespace {

const Failure late{"no response within the time limit"};

std::optional<Failure> send_all(int fd, std::string_view bytes, client::Deadline until) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (!client::wait_for_socket(fd, POLLOUT, until)) return late;
        } else if (errno != EINTR) {
            return failure("the connection to the server", errno);
        }
    }
    return std::nullopt;
}

std::optional<Failure> receive_whole(int fd, HttpAnswer& answer, client::Deadline until) {
    while (!answer.complete()) {
        if (!client::wait_for_socket(fd, POLLIN, until)) return late;
        const Expected<bool, Failure> received = receive(fd, answer);
        if (!received) return received.error();
        if (client::Clock::now() >= until && !answer.complete()) return late;
    }
    return std::nullopt;
}

Failure refusal(unsigned code, std::string_view body) {
    const std::string why = read_error(body);
    if (!why.empty()) return {fmt::format("the server refuses the request: {}", why)};
    if (code == 401 || code == 403) return {"the server requires a token; add --token FILE"};
    return {fmt::format("the server responds with HTTP status {}", code)};
}

}  // namespace

namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t longest_head = 16 << 10;  // bytes

Failure not_http(const boost::system::error_code& error) {
    if (error == http::error::body_limit) return {"the response is too long"};
    if (error == http::error::partial_message || error == http::error::end_of_stream) {
        return {"the server closed the connection"};
    }
    return {fmt::format("the response is not HTTP: {}", error.message())};
}

}  // namespace

struct HttpAnswer::Parser {
    http::response_parser<http::string_body> http;
};

HttpAnswer::HttpAnswer(std::optional<std::uint64_t> longest_body)
    : parser_(std::make_unique<Parser>()) {
    parser_->http.eager(true);
    parser_->http.header_limit(longest_head);
    if (longest_body) {
        parser_->http.body_limit(*longest_body);
    } else {
        parser_->http.body_limit(boost::none);
    }
}

HttpAnswer::~HttpAnswer() = default;
HttpAnswer::HttpAnswer(HttpAnswer&&) noexcept = default;
HttpAnswer& HttpAnswer::operator=(HttpAnswer&&) noexcept = default;

std::optional<Failure> HttpAnswer::take(std::string_view bytes) {
    pending_ += bytes;
    is_nbd_ = !parser_->http.got_some() && pending_.starts_with("NBDMAGIC");
    if (is_nbd_) return Failure{"the response is not HTTP: it is the greeting of an NBD server"};
    while (!pending_.empty() && !complete()) {
        boost::system::error_code error;
        const std::size_t used =
            parser_->http.put(boost::asio::const_buffer(pending_.data(), pending_.size()), error);
        pending_.erase(0, used);
        if (error == http::error::need_more) return std::nullopt;
        if (error) return not_http(error);
        if (used == 0) return std::nullopt;
    }
    return std::nullopt;
}

std::optional<Failure> HttpAnswer::take_end() {
    if (complete()) return std::nullopt;
    boost::system::error_code error;
    if (!parser_->http.got_some())
        return Failure{"the server closed the connection without a response"};
    parser_->http.put_eof(error);
    if (error) return not_http(error);
    return std::nullopt;
}

bool HttpAnswer::has_head() const { return parser_->http.is_header_done(); }

bool HttpAnswer::complete() const { return parser_->http.is_done(); }

unsigned HttpAnswer::code() const { return parser_->http.get().result_int(); }

std::string HttpAnswer::take_body() { return std::exchange(parser_->http.get().body(), {}); }

std::string http_request(const HttpRequest& request, std::string_view host,
                         std::string_view token) {
    http::request<http::string_body> message(request.json ? http::verb::post : http::verb::get,
                                             request.target, 11);
    message.set(http::field::host, {host.data(), host.size()});
    message.set(http::field::user_agent, "gpunbd");
    message.set(http::field::connection, "close");
    if (!token.empty()) message.set(http::field::authorization, fmt::format("Bearer {}", token));
    if (request.json) {
        message.set(http::field::content_type, "application/json");
        message.body() = *request.json;
        message.prepare_payload();
    }
    std::ostringstream out;
    out << message;
    return out.str();
}

Expected<OwnedFd, Failure> send_request(const AdminServer& server, const HttpRequest& request,
                                        client::Deadline until) {
    Expected<OwnedFd, Failure> called = call(server, until);
    if (called) {
        const std::string text = http_request(request, server.host, server.token);
        if (auto failed = send_all(called->get(), text, until)) return std::move(*failed);
    }
    return called;
}

Expected<bool, Failure> receive(int fd, HttpAnswer& answer) {
    std::array<char, 65536> piece{};
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got < 0) return failure("the connection to the server", errno);
    auto failed =
        got == 0 ? answer.take_end() : answer.take({piece.data(), static_cast<std::size_t>(got)});
    if (failed) return std::move(*failed);
    return true;
}

namespace {

// Sends a request and receives its response over a connection, which it leaves open.
Expected<HttpAnswer, Failure> exchange_over(Expected<OwnedFd, Failure>& connection,
                                            const AdminServer& server, const HttpRequest& request,
                                            client::Deadline until) {
    connection = send_request(server, request, until);
    if (!connection) return connection.error();
    HttpAnswer answer(longest_response);
    auto failed = receive_whole(connection->get(), answer, until);
    if (failed && !answer.is_nbd()) {
        return Failure{fmt::format("{}: {}", server.address.text, failed->text)};
    }
    return answer;
}

}  // namespace

Expected<HttpAnswer, Failure> exchange(const AdminServer& server, const HttpRequest& request,
                                       client::Deadline until) {
    Expected<OwnedFd, Failure> connection;
    return exchange_over(connection, server, request, until);
}

Expected<std::string, Failure> get(const AdminServer& server, const HttpRequest& request,
                                   client::Deadline until) {
    Expected<OwnedFd, Failure> connection;
    Expected<HttpAnswer, Failure> received = exchange_over(connection, server, request, until);
    if (!received) return std::move(received).error();
    auto& answer = *received;
    if (answer.is_nbd()) {
        return answered_by_nbd(server, connection->get(), until);
    }
    std::string body = answer.take_body();
    if (answer.code() == 200) return success(std::move(body));
    constexpr unsigned replaced = 421;
    return Failure{
        .text = fmt::format("{}: {}", server.address.text, refusal(answer.code(), body).text),
        .response =
            answer.code() == replaced ? Failure::Response::replaced : Failure::Response::refused};
}

void pause_of_attempts() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

Expected<std::string, Failure> repeat_while_replaced(
    const std::function<Expected<std::string, Failure>()>& attempt,
    const std::function<void()>& pause) {
    constexpr std::chrono::minutes longest_upgrade{2};  // see Upgrade
    std::optional<client::Deadline> until;
    for (;;) {
        Expected<std::string, Failure> result = attempt();
        if (result || result.error().response == Failure::Response::refused) return result;
        if (!until && result.error().response == Failure::Response::replaced) {
            until = client::Clock::now() + longest_upgrade;
            fmt::print(stderr, "gpunbd: the server is being replaced; waiting for its successor\n");
        }
        // In between, no server or two servers can be found.
        if (!until || client::Clock::now() >= *until) return result;
        pause();
    }
}

}  // namespace gpunbd::status
