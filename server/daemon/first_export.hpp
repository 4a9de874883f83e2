// The first export of a configuration, whose URI the server shows.
#pragma once

#include "config/options.hpp"

namespace gpunbd::server {

inline bool first_export_needs_tls(const config::Options& options) {
    return options.tls.mode == config::TlsMode::required || options.exports.front().tls_required;
}

}  // namespace gpunbd::server
