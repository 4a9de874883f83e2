// Facts and counters of one connection, for other threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "storage/base/counter.hpp"

namespace gpunbd::server {

// Immutable: a change makes a new object.
struct ConnectionFacts {
    using Clock = std::chrono::system_clock;

    std::string peer;
    std::string listener;
    Clock::time_point since = Clock::now();
    std::string export_name = {};
    bool serving = false;  // false: negotiating
    bool read_only = false;
    std::string tls = {};       // TlsStream::words(); empty: no TLS
    std::string identity = {};  // what the client has proved in TLS
};

struct ConnectionCounters {
    ConnectionCounters(std::uint64_t number, ConnectionFacts known)
        : id(number), facts(std::make_shared<const ConnectionFacts>(std::move(known))) {}

    const std::uint64_t id;                        // unique in the process
    std::shared_ptr<const ConnectionFacts> facts;  // for WorkerCounters only

    storage::Counter requests;   // taken
    storage::Counter in_flight;  // of those, not answered yet
    storage::Counter errors;     // requests answered with an error
    storage::Counter read;       // bytes sent
    storage::Counter written;    // bytes acknowledged
    // When the client stopped taking replies that wait: nanoseconds of Stall::Clock; 0: none wait.
    storage::Counter unsent_since;
};

// A client is stalled if it takes none of its replies for this long.
struct Stall {
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds least{5};

    static std::uint64_t now() {
        return static_cast<std::uint64_t>(
            std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
    }
};

}  // namespace gpunbd::server
