// The files of the web page. They contain no data of the server, so they need no access check.
#pragma once

#include <optional>
#include <string_view>

#include "server/admin/http/message.hpp"

namespace gpunbd::server::admin {

// Returns nothing if there is no such file.
std::optional<Response> page_at(std::string_view path);
bool is_page(std::string_view path);

}  // namespace gpunbd::server::admin
