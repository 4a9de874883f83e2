// The page, which any browser may have that reaches the endpoint: nothing of what it shows is in
// it.
#pragma once

#include <optional>
#include <string_view>

#include "server/admin/http/message.hpp"

namespace gpunbd::server::admin {

// Nothing: there is no such file.
std::optional<Answer> page_at(std::string_view path);

}  // namespace gpunbd::server::admin
