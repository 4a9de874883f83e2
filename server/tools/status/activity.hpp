// What has happened between two ticks, per second: rates of exports and connections.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

struct Rates {
    double read = 0;  // bytes per second
    double written = 0;
    double requests = 0;  // per second
    double errors = 0;
};

struct Activity {
    double cpus = 0;  // in use
    std::map<std::string, Rates> exports;
    std::map<std::uint64_t, Rates> connections;  // by their ids

    Rates of_export(const std::string& name) const;
    Rates of_connection(std::uint64_t id) const;
};

// Nothing: they are not of the same process, or in no order.
std::optional<Activity> activity_between(const Tick& before, const Tick& now);

}  // namespace gpunbd::status
