#include "server/tools/status/http_answer.hpp"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>
#include <utility>

namespace gpunbd::status {

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

}  // namespace gpunbd::status
