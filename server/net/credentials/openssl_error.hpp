// OpenSSL keeps errors in a queue per thread. Every function here leaves it empty.
#pragma once

#include <string>

namespace gpunbd::server {

// Takes the first error as text ("no shared cipher") and clears the queue; `otherwise` if it is
// empty. Allocates.
std::string take_openssl_error(const char* otherwise);

}  // namespace gpunbd::server
