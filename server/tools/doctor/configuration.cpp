#include "server/tools/doctor/configuration.hpp"

#include <fmt/format.h>

#include "config/yaml_file.hpp"
#include "server/tools/doctor/tls_files.hpp"

namespace gpunbd::server {

Diagnoses check_configuration(const Machine& machine, const std::optional<std::string>& file) {
    if (!file && !machine.has(packaged_configuration)) return {};
    const std::string path = file.value_or(machine.root() + packaged_configuration);
    const config::Loaded loaded = config::load_file(path);
    if (loaded.problems.empty()) return check_tls_files(loaded.options.tls);
    return {fail("configuration", loaded.problems.front().text(), "gpunbd check " + path)};
}

}  // namespace gpunbd::server
