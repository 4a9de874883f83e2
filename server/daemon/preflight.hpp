// `gpunbd check`: tries what serving will need beyond a valid file (owners, devices, sizes,
// folders, ports) without taking any of it, and says what it could not try.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

struct Finding {
    bool failure = false;  // serving would fail; else: good to know
    std::string key;       // of the file: "listeners.tcp[0]"
    std::string text;
};

std::vector<Finding> try_out(const config::Options& options);

}  // namespace gpunbd::server
