// `gpunbd doctor`: checks whether the machine is configured for gpunbd, and names remedies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

// `topic`: swap, remote, gpu, keep or ublk; empty: all. `configuration`: a file; nullopt: the
// packaged one, if it exists.
Diagnoses diagnose(std::string_view topic, const Machine& machine,
                   const std::optional<std::string>& configuration = {});

// One line per finding, or JSON.
std::string as_lines(const Diagnoses& diagnoses);
std::string as_json(const Diagnoses& diagnoses);

}  // namespace gpunbd::server
