#include "server/tools/doctor/doctor.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <iterator>

#include "server/tools/doctor/configuration.hpp"
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
    if (topic.empty() || topic == "remote") add(check_configuration(machine, configuration));
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
