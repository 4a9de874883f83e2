// Parses an HTTP/1.1 response from bytes as they arrive. It has no socket, so that tests can pass
// arbitrary input.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/tools/client/failure.hpp"

namespace gpunbd::status {

class HttpAnswer {
 public:
    // Limits the body to `longest_body` bytes; nullopt: the body is a stream without an end.
    explicit HttpAnswer(std::optional<std::uint64_t> longest_body);
    ~HttpAnswer();
    HttpAnswer(HttpAnswer&&) noexcept;
    HttpAnswer& operator=(HttpAnswer&&) noexcept;

    // Returns the parse error, if any.
    std::optional<Failure> take(std::string_view bytes);
    // Call it when the server has closed the connection.
    std::optional<Failure> take_end();
    bool has_head() const;
    // The bytes are the greeting of an NBD server.
    bool is_nbd() const { return is_nbd_; }
    bool complete() const;
    unsigned code() const;  // 200: success
    // The part of the body that has arrived since the last call.
    std::string take_body();

 private:
    struct Parser;
    std::unique_ptr<Parser> parser_;
    bool is_nbd_ = false;
    std::string pending_;  // unparsed bytes; the parser needs more input
};

struct HttpRequest {
    std::string target;
    std::optional<std::string> json = {};  // set: POST with this body; otherwise GET
};
// An empty `token` omits the header.
std::string http_request(const HttpRequest& request, std::string_view host, std::string_view token);

}  // namespace gpunbd::status
