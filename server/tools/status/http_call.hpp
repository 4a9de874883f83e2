// A request to the admin endpoint over a new connection: either the whole response by a deadline,
// or an open stream.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_answer.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

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
