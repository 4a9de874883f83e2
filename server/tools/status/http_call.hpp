#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

// Parses an HTTP/1.1 response from bytes as they arrive. It has no socket, so that tests can pass
// arbitrary input.
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

// A request to the admin endpoint over a new connection: either the whole response by a deadline,
// or an open stream.

void pause_of_attempts();

inline constexpr std::size_t longest_response = std::size_t{32} << 20;  // bytes

// Returns the socket for the response.
Expected<OwnedFd, Failure> send_request(const AdminServer& server, const HttpRequest& request,
                                        client::Deadline until);

// Passes the available bytes to `answer`. Returns false if there are none.
Expected<bool, Failure> receive(int fd, HttpAnswer& answer);

// The whole response. It is incomplete if an NBD server answers: is_nbd().
Expected<HttpAnswer, Failure> exchange(const AdminServer& server, const HttpRequest& request,
                                       client::Deadline until);

// The body of a response with status 200; otherwise the error that the server reports.
Expected<std::string, Failure> get(const AdminServer& server, const HttpRequest& request,
                                   client::Deadline until);

// Repeats an attempt, after a pause, while the server is being replaced: each one finds the server
// anew, and sends it the same request. Returns the last result.
Expected<std::string, Failure> repeat_while_replaced(
    const std::function<Expected<std::string, Failure>()>& attempt,
    const std::function<void()>& pause = pause_of_attempts);

}  // namespace gpunbd::status
