// What the doctor says of the files that a configuration names for TLS.
#pragma once

#include "config/options.hpp"
#include "server/tools/doctor/diagnosis.hpp"

namespace gpunbd::server {

// None where TLS is off.
Diagnoses check_tls_files(const config::TlsOptions& tls);

}  // namespace gpunbd::server
