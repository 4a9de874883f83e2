// `gpunbd check`: checks what serving needs beyond a valid file (owners, devices, sizes, folders,
// ports) without using it. Reports what cannot be checked.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"

namespace gpunbd::server {

struct Finding {
    bool failure = false;  // true: serving would fail; false: a note
    std::string key;       // in the file: "listeners.tcp[0]"
    std::string text;
};

std::vector<Finding> try_out(const config::Options& options);

}  // namespace gpunbd::server
