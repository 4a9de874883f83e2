// What is known of one connection beyond its worker: who it is, and what it has asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "storage/counter.hpp"

namespace gpunbd::server {

// Fixed while nobody looks: what comes to be known makes another one.
struct ConnectionFacts {
    using Clock = std::chrono::system_clock;

    std::string peer;
    std::string listener;
    Clock::time_point since = Clock::now();
    std::string export_name = {};
    bool serving = false;  // else it negotiates
    bool read_only = false;
    std::string tls = {};       // its words; empty: none
    std::string identity = {};  // what it has proved there
};

struct ConnectionCounters {
    ConnectionCounters(std::uint64_t number, ConnectionFacts known)
        : id(number), facts(std::make_shared<const ConnectionFacts>(std::move(known))) {}

    const std::uint64_t id;                        // of all that the process has had
    std::shared_ptr<const ConnectionFacts> facts;  // for WorkerCounters alone

    storage::Counter requests;   // taken
    storage::Counter in_flight;  // of those
    storage::Counter read;       // bytes
    storage::Counter written;    // bytes
};

}  // namespace gpunbd::server
