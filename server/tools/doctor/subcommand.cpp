#include "server/tools/doctor/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/command_line/store.hpp"
#include "server/base/exit_code.hpp"
#include "server/logging/log.hpp"
#include "server/tools/doctor/doctor.hpp"

namespace gpunbd::tools {

using namespace config;

DoctorCommand::DoctorCommand()
    : Command({.name = "doctor",
               .called = "diagnose health support report",
               .takes = "TOPIC",
               .example = "swap",
               .words = {"swap", "remote", "gpu", "keep"},
               .kind = "topics",
               .optional = true,
               .brief = "Tell what of this machine needs mending",
               .usage = "Usage: gpunbd doctor [swap|remote|gpu|keep] [--config FILE] [--json]\n",
               .about =
                   R"(Looks at limits, rights, the kernel and its settings, drivers and cards, and
says of each whether it is fit, with the remedy where not. It changes nothing.
Run it as the user of the server, for these are that user's rights.
  swap    the kernel's client, and swapping to a server of the same machine
  remote  clients on other machines: TLS and its files, how many can connect
  gpu     the driver, what the CPU sees of the card's memory, NUMA
  keep    contents that outlive the server
)",
               .groups = {{"Flags",
                           {{.name = "--config",
                             .takes = file_argument,
                             .example = "/etc/gpunbd.yaml",
                             .brief = "Look at the files that this configuration names for TLS",
                             .more = ". Default: /etc/gpunbd/gpunbd.yaml, where it is there.",
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
                   R"(Exit codes: 0 nothing has failed, though there may be warnings; 1 something
has; 2 wrong usage.
See also: gpunbd(8)
)",
               .synopsis = R"(.Nm
.Cm doctor
.Op Cm swap | remote | gpu | keep
.Op Fl -config Ar file
.Op Fl -json
)",
               .manual = R"(.It Cm doctor Op Cm swap | remote | gpu | keep
Look at what
.Nm
needs of this machine, and print a line for each thing:
.Ql ok ,
.Ql warn
or
.Ql fail ,
what it is, and the remedy; nothing is changed.
.Cm swap :
the kernel's client (its module, free devices, partitions, the size of requests, the right to attach), and what keeps a
server alive that its own machine swaps to.
.Cm remote :
TLS, the backlog, open files.
.Cm gpu :
driver, persistence mode, the window to each card's memory and whether it is mapped, NUMA.
.Cm keep :
the version of systemd, descriptors, huge pages.
Run it as the user of the server, since it looks at rights and limits as well.
With
.Cm remote ,
and for all, it looks at what a configuration names for TLS: dates, names, keys and who may read them, and whether the
authority vouches for the certificate.
The exit status is 1 where something has failed.
)",
               .store = into(topic)}) {}

int DoctorCommand::run(const Commands&) {
    const server::Log log({.level = "error"});  // of drivers
    const server::Diagnoses found = server::diagnose(topic, server::Machine(), config_file);
    fmt::print("{}", json ? server::as_json(found) : server::as_lines(found));
    const auto failed = [](const server::Diagnosis& each) {
        return each.verdict == server::Diagnosis::Verdict::fail;
    };
    return std::ranges::any_of(found, failed) ? server::exit_failure : 0;
}

}  // namespace gpunbd::tools
