// Facts and counters of one connection, for other threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "server/counters/counts.hpp"

namespace gpunbd::server {

// Immutable: a change makes a new object.
struct ConnectionFacts {
    using Clock = std::chrono::steady_clock;

    std::string peer;
    std::string listener;
    Clock::time_point since = Clock::now();
    std::string export_name = {};
    bool serving = false;  // false: negotiating
    bool read_only = false;
    std::string tls = {};       // TlsStream::words(); empty: no TLS
    std::string identity = {};  // what the client has proved in TLS
};

struct ConnectionCounters : ConnectionCounts<Counter> {
    ConnectionCounters(std::uint64_t number, ConnectionFacts known)
        : id(number), facts(std::make_shared<const ConnectionFacts>(std::move(known))) {}

    const std::uint64_t id;                        // unique in the process
    std::shared_ptr<const ConnectionFacts> facts;  // for WorkerCounters only

    // When the client stopped taking replies that wait: nanoseconds of Stall::Clock; 0: none wait.
    Counter unsent_since;
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
