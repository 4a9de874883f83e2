// The doctor's checks of the TLS files that a configuration names.
#pragma once

#include "config/options.hpp"
#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

// Empty if TLS is off.
Diagnoses check_tls_files(const config::TlsOptions& tls);

}  // namespace gpunbd::server
