// Rates of exports and connections, calculated from two ticks.
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
    double cpus = 0;  // CPUs in use
    std::map<std::string, Rates> exports;
    std::map<std::uint64_t, Rates> connections;  // by id

    Rates of_export(const std::string& name) const;
    Rates of_connection(std::uint64_t id) const;
};

// nullopt: the ticks are of different processes, or out of order.
std::optional<Activity> activity_between(const Tick& before, const Tick& now);

}  // namespace gpunbd::status
