// The doctor's checks of a configuration. They complement those of `gpunbd check`.
#pragma once

#include <optional>
#include <string>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

inline constexpr const char* packaged_configuration = "/etc/gpunbd/gpunbd.yaml";

// `file`: the configuration; nullopt: the packaged one, if it exists.
Diagnoses check_configuration(const Machine& machine, const std::optional<std::string>& file);

}  // namespace gpunbd::server
