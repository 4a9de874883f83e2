// Parses one HTTP/1.x request from the bytes of a connection. Only request_parser.cpp depends on
// Boost.Beast.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "server/admin/http/message.hpp"

namespace gpunbd::server::admin {

class RequestParser {
 public:
    explicit RequestParser(const Limits& limits);
    ~RequestParser();
    RequestParser(const RequestParser&) = delete;
    RequestParser& operator=(const RequestParser&) = delete;

    // Parses the beginning of `bytes` and returns how many bytes it consumed. The caller passes the
    // rest again, together with the bytes that follow.
    std::size_t parse(std::string_view bytes);
    bool done() const;
    // Set: the bytes are not a request, or exceed a limit.
    const std::optional<Response>& error() const { return error_; }

    // Of a request that is done().
    bool keep_alive() const;
    Request take();

 private:
    struct Parser;
    const Limits& limits_;
    const std::unique_ptr<Parser> parser_;
    std::optional<Response> error_;
};

}  // namespace gpunbd::server::admin
