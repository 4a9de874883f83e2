// What the admin endpoint reports of kept contents.
#pragma once

#include <string>

#include "server/admin/model/admin_backend.hpp"
#include "server/handover/retained_contents.hpp"

namespace gpunbd::server {

Kept list_kept(const RetainedContents& contents);
// Gives back what no export has. It is done if anything was given back.
Outcome drop_kept(RetainedContents& contents, const std::string& name);

}  // namespace gpunbd::server
