// What one worker counts. Its thread alone writes, without a lock; whoever looks takes one, which
// the worker needs only where connections begin and end. Nobody allocates while he has it: who
// waits for memory would keep a worker waiting, which may be what brings that memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/counters/connection_counters.hpp"
#include "server/counters/request_counters.hpp"

namespace gpunbd::server {

// How a handshake ended that came to no export.
enum class HandshakeFailure : std::uint8_t {
    hung_up,      // the client
    aborted,      // by the client, as the protocol has it
    refused,      // there is no such export for it
    protocol,     // it broke the rules
    tls,          // the TLS handshake failed
    timeout,      // it took too long
    evicted,      // others had its place
    export_gone,  // by a reload
    closed,       // by this server, for another reason
};
inline constexpr std::array handshake_failures{"hung_up",  "aborted",     "refused",
                                               "protocol", "tls",         "timeout",
                                               "evicted",  "export_gone", "closed"};

class WorkerCounters {
 public:
    // The worker's thread.
    std::shared_ptr<ExportCounters> of_export(const std::string& name);
    std::shared_ptr<ConnectionCounters> begin(ConnectionFacts facts);
    void learn(ConnectionCounters& connection, ConnectionFacts facts);
    void end(const ConnectionCounters& connection) noexcept;

    Counter handshakes;      // that came to an export
    Counter tls_handshakes;  // that succeeded
    std::array<Counter, handshake_failures.size()> failed_handshakes;
    void handshake_failed(HandshakeFailure why) {
        failed_handshakes[static_cast<std::size_t>(why)].add();
    }

    // Any thread.
    std::vector<std::shared_ptr<const ExportCounters>> exports() const;
    struct Seen {
        std::shared_ptr<const ConnectionCounters> counters;
        std::shared_ptr<const ConnectionFacts> facts;
    };
    std::vector<Seen> connections() const;

 private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<ExportCounters>, std::less<>> exports_;
    std::map<std::uint64_t, std::shared_ptr<ConnectionCounters>> connections_;
};

}  // namespace gpunbd::server
