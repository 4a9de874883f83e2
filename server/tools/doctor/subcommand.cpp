#include "server/tools/doctor/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <iterator>

#include "config/command_line/store.hpp"
#include "config/yaml_file.hpp"
#include "server/base/process.hpp"
#include "server/logging/log.hpp"
#include "server/tools/doctor/tls_files.hpp"
#include "server/tools/doctor/topics.hpp"
#include "storage/devices/drivers/device_drivers.hpp"

namespace gpunbd::server {

namespace {

struct Topic {
    std::string_view name;
    Diagnoses (*check)(const Machine&);
};
constexpr std::array topics{
    Topic{"swap", check_kernel_client}, Topic{"swap", check_swap}, Topic{"remote", check_remote},
    Topic{"gpu", check_device_drivers}, Topic{"keep", check_keep}, Topic{"ublk", check_ublk},
};

std::string_view word(Diagnosis::Verdict verdict) {
    switch (verdict) {
        case Diagnosis::Verdict::ok:
            return "ok";
        case Diagnosis::Verdict::warn:
            return "warn";
        case Diagnosis::Verdict::fail:
            break;
    }
    return "fail";
}

}  // namespace

Diagnoses check_configuration(const Machine& machine, const std::optional<std::string>& file,
                              std::string_view topic) {
    if (!file && !machine.has(packaged_configuration)) return {};
    const std::string path = file.value_or(machine.root() + packaged_configuration);
    const config::Loaded loaded = config::load_file(path);
    if (!loaded.problems.empty()) {
        return {fail("configuration", loaded.problems.front().text(), "gpunbd check " + path)};
    }
    Diagnoses out;
    if (topic.empty() || topic == "remote") out = check_tls_files(loaded.options.tls);
    if (topic.empty() || topic == "keep") {
        for (Diagnosis& each : check_origins(machine, loaded.options)) {
            out.push_back(std::move(each));
        }
    }
    return out;
}

Diagnoses check_device_drivers(const Machine& machine) {
    Diagnoses out;
    for (const storage::DeviceDriver* driver : storage::device_drivers()) {
        for (Diagnosis& each : driver->diagnose(machine)) out.push_back(std::move(each));
    }
    return out;
}

Diagnoses diagnose(std::string_view topic, const Machine& machine,
                   const std::optional<std::string>& configuration) {
    Diagnoses out;
    const auto add = [&](Diagnoses found) {
        std::move(found.begin(), found.end(), std::back_inserter(out));
    };
    for (const Topic& each : topics) {
        if (topic.empty() || each.name == topic) add(each.check(machine));
    }
    if (topic.empty() || topic == "remote" || topic == "keep") {
        add(check_configuration(machine, configuration, topic));
    }
    return out;
}

std::string as_lines(const Diagnoses& diagnoses) {
    std::string out;
    for (const Diagnosis& each : diagnoses) {
        out += fmt::format("{:<5} {}: {}", word(each.verdict), each.what, each.is);
        if (!each.remedy.empty()) out += "; " + each.remedy;
        out += '\n';
    }
    return out;
}

std::string as_json(const Diagnoses& diagnoses) {
    boost::json::array out;
    for (const Diagnosis& each : diagnoses) {
        out.push_back(boost::json::object{{"verdict", word(each.verdict)},
                                          {"what", each.what},
                                          {"is", each.is},
                                          {"remedy", each.remedy}});
    }
    return boost::json::serialize(boost::json::object{{"diagnoses", std::move(out)}}) + '\n';
}

}  // namespace gpunbd::server

namespace gpunbd::tools {

using namespace config;

DoctorCommand::DoctorCommand()
    : Command(
          {.name = "doctor",
           .called = "diagnose health support report",
           .takes = "TOPIC",
           .example = "swap",
           .words = {"swap", "remote", "gpu", "keep", "ublk"},
           .kind = "topics",
           .optional = true,
           .brief = "Check whether this machine is configured for gpunbd",
           .usage = "Usage: gpunbd doctor [swap|remote|gpu|keep|ublk] [--config FILE] [--json]\n",
           .about =
               R"(Checks limits, privileges, kernel settings, drivers and GPUs, and prints a
remedy for each problem. It changes nothing. Run it as the user of the server,
because it checks the privileges and limits of that user.
  swap    the kernel's NBD client, and swap on a server of the same machine
  remote  clients on other machines: TLS and its files, limits of connections
  gpu     the driver, the CPU's access to GPU memory, NUMA
  keep    contents that outlive the server, and origins of a configuration
  ublk    block devices that a server makes
)",
           .groups = {{"Flags",
                       {{.name = "--config",
                         .takes = file_argument,
                         .example = "/etc/gpunbd/gpunbd.yaml",
                         .brief = "Check the TLS files and origins of this configuration",
                         .more = ". Default: /etc/gpunbd/gpunbd.yaml, if it exists.",
                         .called = "--file --conf --configuration",
                         .store = into(config_file)},
                        {.name = "--json",
                         .brief = "Print JSON instead of lines",
                         .more = ".",
                         .called = "--format --output",
                         .store = into(json)}}}},
           .examples = R"(  gpunbd doctor
  gpunbd doctor swap
)",
           .ending =
               R"(Exit codes: 0 no check has failed, but there may be warnings; 1 a check has
failed; 2 wrong usage.
See also: gpunbd(8)
)",
           .manual = R"(Check whether this machine is configured for
.Nm ,
and print one line per check:
.Ql ok ,
.Ql warn
or
.Ql fail ,
the finding, and the remedy.
It changes nothing.
.Cm swap :
the kernel's client (its module, free devices, partitions, the size of requests, the right to attach), and the
protections of a server whose exports are swap of its own machine.
.Cm remote :
TLS, the backlog, open files.
.Cm gpu :
driver, persistence mode, the window to each card's memory and whether it is mapped, NUMA.
.Cm keep :
the version of systemd, descriptors, huge pages.
.Cm ublk :
the kernel, its module, io_uring, the right to make devices.
Run it as the user of the server, because it checks the privileges and limits of that user.
.Cm remote
also checks the TLS files of a configuration: dates, names, keys and their permissions, and whether the authority has
signed the certificate.
.Cm keep
also checks its origins: whether a file is on the same file system as spill memory, and whether write-back has a
supervisor.
The exit status is 1 if a check has failed.
)",
           .store = into(topic)}) {}

void DoctorCommand::check() {
    if (config_file && !topic.empty() && topic != "remote" && topic != "keep") {
        throw UsageError(fmt::format(
            "--config is for the topics remote and keep, not for {}; leave it out", topic));
    }
}

int DoctorCommand::run(const Commands&) {
    const server::Log log({.level = "error"});  // from drivers
    const server::Diagnoses found = server::diagnose(topic, server::Machine(), config_file);
    fmt::print("{}", json ? server::as_json(found) : server::as_lines(found));
    const auto failed = [](const server::Diagnosis& each) {
        return each.verdict == server::Diagnosis::Verdict::fail;
    };
    return std::ranges::any_of(found, failed) ? server::exit_failure : 0;
}

}  // namespace gpunbd::tools
