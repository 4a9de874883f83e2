// OpenSSL keeps what went wrong in a list of the thread, which is left empty behind every call
// here.
#pragma once

#include <string>

namespace gpunbd::server {

// The first of the list, in words ("no shared cipher"), and the list is empty; `otherwise` where
// there is none. Takes memory.
std::string take_openssl_error(const char* otherwise);

}  // namespace gpunbd::server
