// One request to the admin endpoint over a connection of its own: answered whole by a deadline, or
// left open where its answer has no end.
#pragma once

#include <string>
#include <string_view>

#include "server/tools/client/deadline.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_answer.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::status {

inline constexpr std::size_t longest_answer = std::size_t{32} << 20;  // bytes

// The socket, on which the answer will come.
Or<OwnedFd> ask(const AdminServer& server, const HttpRequest& request, client::Deadline until);

// What is there to be read goes to the answer. False: nothing is there yet.
Or<bool> receive(int fd, HttpAnswer& answer);

// The body of an answer that says "ok"; else what the server says instead.
Or<std::string> get(const AdminServer& server, const HttpRequest& request, client::Deadline until);

}  // namespace gpunbd::status
