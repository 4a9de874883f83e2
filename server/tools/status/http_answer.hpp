// An answer by HTTP/1.1, of which it is given bytes as they come: no socket, so that tests send it
// whatever a server may send.
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
    // With a body of at most so many bytes; unset: it has no end, and is taken as it comes.
    explicit HttpAnswer(std::optional<std::uint64_t> longest_body);
    ~HttpAnswer();
    HttpAnswer(HttpAnswer&&) noexcept;
    HttpAnswer& operator=(HttpAnswer&&) noexcept;

    // What is wrong with it; unset: nothing so far.
    std::optional<Failure> take(std::string_view bytes);
    // The server has hung up.
    std::optional<Failure> take_end();
    bool has_head() const;
    bool complete() const;
    unsigned code() const;  // 200: ok
    // What has come of the body since the last call.
    std::string take_body();

 private:
    struct Parser;
    std::unique_ptr<Parser> parser_;
    std::string pending_;  // bytes that the parser wants to see again, with more behind them
};

struct HttpRequest {
    std::string target;
    std::optional<std::string> json = {};  // set: it is posted; unset: GET
};
// An empty `token`: without one.
std::string http_request(const HttpRequest& request, std::string_view host, std::string_view token);

}  // namespace gpunbd::status
