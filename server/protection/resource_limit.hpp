// Resource limits of the process that would prevent its protection.
#pragma once

namespace gpunbd::server {

// Raises the limit as far as permitted. Returns true if the resource is unlimited then.
bool lift_limit(int resource);

}  // namespace gpunbd::server
