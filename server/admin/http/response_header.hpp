// The status line and the header of a response, as they are sent.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "server/admin/http/message.hpp"

namespace gpunbd::server::admin {

// `length`: of the body; unset: the connection's end ends the body.
std::string response_header(const Response& response, bool keep_alive,
                            std::optional<std::size_t> length);

}  // namespace gpunbd::server::admin
