// One request to the admin endpoint over a connection of its own: answered whole by a deadline, or
// left open where its answer has no end.
#pragma once

#include <string>
#include <string_view>

#include "server/client/deadline.hpp"
#include "server/client/failure.hpp"
#include "server/listening/owned_fd.hpp"
#include "server/status/admin_server.hpp"
#include "server/status/http_answer.hpp"

namespace gpunbd::status {

inline constexpr std::size_t longest_answer = std::size_t{32} << 20;  // bytes

// The socket, on which the answer will come.
Or<server::OwnedFd> ask(const AdminServer& server, std::string_view target, client::Deadline until);

// What is there to be read goes to the answer. False: nothing is there yet.
Or<bool> receive(int fd, HttpAnswer& answer);

// The body of an answer that says "ok"; else what the server says instead.
Or<std::string> get(const AdminServer& server, std::string_view target, client::Deadline until);

}  // namespace gpunbd::status
