#include "server/net/credentials/openssl_error.hpp"

#include <openssl/err.h>

#include <cstring>

namespace gpunbd::server {

std::string take_openssl_error(const char* otherwise) {
    const unsigned long first = ::ERR_get_error();
    ::ERR_clear_error();
    if (first == 0) return otherwise;
    if (ERR_SYSTEM_ERROR(first)) return std::strerror(ERR_GET_REASON(first));
    const char* const reason = ::ERR_reason_error_string(first);
    return reason != nullptr ? reason : otherwise;
}

}  // namespace gpunbd::server
