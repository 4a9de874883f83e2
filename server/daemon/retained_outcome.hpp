// The admin endpoint's reports about kept contents.
#pragma once

#include <string>

#include "server/admin/model/admin_backend.hpp"
#include "server/handover/retained_contents.hpp"

namespace gpunbd::server {

Kept list_kept(const RetainedContents& contents);
// Frees contents of that name without an export. Succeeds if any were freed.
Outcome drop_kept(RetainedContents& contents, const std::string& name);

}  // namespace gpunbd::server
