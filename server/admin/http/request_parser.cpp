#include "server/admin/http/request_parser.hpp"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server::admin {

namespace beast = boost::beast;
namespace http = beast::http;

namespace {

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

// Also unset if the header is repeated, because HTTP does not define which value applies.
std::optional<std::string> unique_header(const http::fields& headers, http::field name) {
    if (headers.count(name) != 1) return std::nullopt;
    return text_of(headers[name]);
}

// Like unique_header(), but a repeated header becomes the empty value, which is always refused.
std::optional<std::string> checked_header(const http::fields& headers, http::field name) {
    if (headers.count(name) > 1) return "";
    return unique_header(headers, name);
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

Response header_too_long(const Limits& limits) {
    return error_response(431,
                          fmt::format("a header of the request exceeds {} bytes", limits.header));
}

Response error_response_for(const beast::error_code& error, const Limits& limits) {
    if (error == http::error::header_limit) return header_too_long(limits);
    if (error == http::error::body_limit) {
        return error_response(413,
                              fmt::format("the body of the request exceeds {} bytes", limits.body));
    }
    return error_response(400, fmt::format("not an HTTP/1.1 request: {}", error.message()));
}

}  // namespace

struct RequestParser::Parser : http::request_parser<http::string_body> {};

RequestParser::RequestParser(const Limits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
    parser_->header_limit(static_cast<std::uint32_t>(limits.header));
    parser_->body_limit(limits.body);
    parser_->eager(true);
}

RequestParser::~RequestParser() = default;

bool RequestParser::done() const { return parser_->is_done(); }

std::size_t RequestParser::parse(std::string_view bytes) {
    std::size_t consumed = 0;
    while (consumed != bytes.size() && !done()) {
        beast::error_code error;
        const std::size_t taken = parser_->put(
            boost::asio::buffer(bytes.data() + consumed, bytes.size() - consumed), error);
        consumed += taken;
        if (error == http::error::need_more) break;
        if (error) {
            error_ = error_response_for(error, limits_);
            break;
        }
    }
    // The parser keeps no part of a header. Its own limit does not include the header of a chunk
    // and trailers.
    if (!done() && !error_ && bytes.size() - consumed > limits_.header) {
        error_ = header_too_long(limits_);
    }
    return consumed;
}

bool RequestParser::keep_alive() const { return parser_->get().keep_alive(); }

Request RequestParser::take() {
    GPUNBD_ASSERT(done() && !error_, "a request is taken when it is complete and valid");
    http::request<http::string_body> parsed = parser_->release();
    Request request;
    request.method = method_of(parsed.method());
    request.target = text_of(parsed.target());
    request.host = unique_header(parsed, http::field::host);
    request.origin = checked_header(parsed, http::field::origin);
    request.authorization = checked_header(parsed, http::field::authorization);
    const auto site = parsed.find("Sec-Fetch-Site");
    if (site != parsed.end()) request.fetch_site = text_of(site->value());
    request.content_type = text_of(parsed[http::field::content_type]);
    request.accept = text_of(parsed[http::field::accept]);
    request.body = std::move(parsed.body());
    return request;
}

}  // namespace gpunbd::server::admin
