#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/command_line/command.hpp"
#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

// The doctor's checks of a configuration. They complement those of `gpunbd check`.

inline constexpr const char* packaged_configuration = "/etc/gpunbd/gpunbd.yaml";

// `file`: the configuration; nullopt: the packaged one, if it exists. `topic`: remote or keep;
// empty: both.
Diagnoses check_configuration(const Machine& machine, const std::optional<std::string>& file,
                              std::string_view topic = {});

// `gpunbd doctor`: checks whether the machine is configured for gpunbd, and names remedies.

// `topic`: swap, remote, gpu, keep or ublk; empty: all. `configuration`: a file; nullopt: the
// packaged one, if it exists.
Diagnoses diagnose(std::string_view topic, const Machine& machine,
                   const std::optional<std::string>& configuration = {});

// One line per finding, or JSON.
std::string as_lines(const Diagnoses& diagnoses);
std::string as_json(const Diagnoses& diagnoses);

}  // namespace gpunbd::server

namespace gpunbd::tools {

// `gpunbd doctor`
class DoctorCommand final : public config::Command {
 public:
    DoctorCommand();
    void check() override;
    int run(const config::Commands& all) override;

    std::string topic;  // empty: all of them
    bool json = false;
    std::optional<std::string> config_file;
};

}  // namespace gpunbd::tools
