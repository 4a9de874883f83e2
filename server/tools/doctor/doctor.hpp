// `gpunbd doctor`: whether this machine is fit for what its user wants of it, and what would help.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/tools/doctor/diagnosis.hpp"
#include "server/tools/doctor/machine.hpp"

namespace gpunbd::server {

// `topic`: swap, remote, gpu or keep; empty: all of them. `configuration`: a file; none: the
// package's, where it is there.
Diagnoses diagnose(std::string_view topic, const Machine& machine,
                   const std::optional<std::string>& configuration = {});

// A line each, for people, or JSON.
std::string as_lines(const Diagnoses& diagnoses);
std::string as_json(const Diagnoses& diagnoses);

}  // namespace gpunbd::server
