// The configuration, as far as the doctor has anything to say of it that `gpunbd check` has not.
#pragma once

#include <optional>
#include <string>

#include "server/tools/doctor/diagnosis.hpp"
#include "server/tools/doctor/machine.hpp"

namespace gpunbd::server {

inline constexpr const char* packaged_configuration = "/etc/gpunbd/gpunbd.yaml";

// `file`: none: the package's, where the machine has it.
Diagnoses check_configuration(const Machine& machine, const std::optional<std::string>& file);

}  // namespace gpunbd::server
