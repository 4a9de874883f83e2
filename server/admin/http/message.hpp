#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/admin_backend.hpp"

namespace gpunbd::server::admin {

// The most that clients of the admin endpoint may use.
struct Limits {
    // Maximum number of simultaneous connections of each listener.
    std::size_t connections = 32;
    std::size_t connections_of_client = 24;
    std::size_t streams = 8;  // a subset of the connections
    std::size_t streams_of_client = 6;
    std::size_t header = 8 << 10;               // bytes of a request
    std::size_t body = 16 << 10;                // bytes of a request
    std::chrono::milliseconds request{10'000};  // to receive a request, and to send its response
    std::chrono::milliseconds idle{60'000};     // between two requests, and to send a tick
    std::chrono::milliseconds outcome{30'000};  // for an operation of the server
    std::chrono::milliseconds long_outcome{3'600'000};  // for one that takes long
};

// HTTP requests and responses as plain values: code that decides on them needs neither sockets nor
// an HTTP library.
enum class Method { get, head, post, other };

struct Request {
    Method method = Method::get;
    std::string target = {};               // as received: "/api/v1/map?export=a"
    std::optional<std::string> host = {};  // unset: missing or repeated
    std::optional<std::string> origin = {};
    std::optional<std::string> fetch_site = {};  // Sec-Fetch-Site
    std::optional<std::string> authorization = {};
    std::string content_type = {};
    std::string accept = {};
    std::string body = {};
    std::string peer = {};  // the client, as in the log
    bool owner = false;     // over the admin socket: the server's user, or root
    // Set: changes are not allowed over this connection, for this reason.
    std::optional<std::string> read_only_reason = {};
};

struct Header {
    std::string name;
    std::string value;
};

struct Response {
    unsigned status = 200;
    std::string content_type = "application/json";
    std::string body = {};
    std::vector<Header> headers = {};  // in addition to those that every response has
    bool stream = false;               // server-sent events follow instead of a body
    std::string change = {};           // the change, for the log; empty: none
    // Set: the response is the outcome of this operation, which has yet to be started.
    std::function<void(Completion)> operation = {};
    bool takes_long = false;  // the operation: minutes are to be expected
};

// A JSON object with the member `error`.
Response error_response(unsigned status, std::string_view message);

// The status line and the header of a response, as they are sent.

// `length`: of the body; unset: the connection's end ends the body.
std::string response_header(const Response& response, bool keep_alive,
                            std::optional<std::size_t> length);

}  // namespace gpunbd::server::admin
