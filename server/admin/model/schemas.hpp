// The schemas of a status in the API, in the YAML of OpenAPI.
#pragma once

#include <string>

namespace gpunbd::server {

// Those of every structure of a Status, of connections, of kept contents and of the results of
// reclaiming, as entries of `components.schemas`. They refer to the schemas Count, Counts and
// Latency.
std::string status_schemas();

}  // namespace gpunbd::server
