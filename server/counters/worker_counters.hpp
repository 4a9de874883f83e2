#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/constants.hpp"
#include "server/counters/counts.hpp"
#include "server/counters/longest_requests.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// Counters of one worker for the requests of one export, by type.
struct RequestCounters : RequestCounts<Counter> {
    Counter in_flight;

    void count_answer(std::uint64_t length) {
        requests.add();
        bytes.add(length);
    }
    void failed(protocol::Error error) {
        GPUNBD_ASSERT(std::ranges::count(RequestErrors::errors, error) == 1,
                      "each error that is sent is counted under one name");
        for (std::size_t i = 0; i != RequestErrors::size; ++i) {
            if (RequestErrors::errors[i] == error) errors[i].add();
        }
    }
};

// For all clients of a worker. It lives as long as the server, even if its export is removed and
// another of that name is added. A renamed export takes its counters along.
struct ExportCounters : ExportCounts<Counter> {
    // Unknown types share the last index.
    static constexpr std::size_t types = protocol::command_types + 1;

    RequestCounters& of(protocol::CommandType type) {
        GPUNBD_ASSERT(static_cast<std::size_t>(type) < types - 1, "a command has a known type");
        return by_type[static_cast<std::size_t>(type)];
    }
    RequestCounters& of(std::uint16_t type) { return by_type[type < types - 1 ? type : types - 1]; }

    std::array<RequestCounters, types> by_type;
    LongestRequests longest;
};

// Immutable: a change makes a new object.
struct ConnectionFacts {
    using Clock = std::chrono::steady_clock;

    std::string peer;
    std::string listener;
    Clock::time_point since = Clock::now();
    std::string export_name = {};
    bool serving = false;  // false: negotiating
    bool read_only = false;
    std::string tls = {};       // TlsStream::text(); empty: no TLS
    std::string identity = {};  // what the client has proved in TLS
};

// Facts and counters of one connection, for other threads.
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

// Counters of one worker. Only its thread writes them, without a lock. Readers take a lock, which
// the worker takes only when connections begin and end. No reader may allocate while it holds the
// lock: a worker that waits for it may be the one that provides memory.
class WorkerCounters : public WorkerCounts<Counter> {
 public:
    // The worker's thread.
    std::shared_ptr<ExportCounters> of_export(const std::string& name);
    std::shared_ptr<ConnectionCounters> begin(ConnectionFacts facts);
    void learn(ConnectionCounters& connection, ConnectionFacts facts);
    void end(const ConnectionCounters& connection) noexcept;

    void handshake_failed(HandshakeFailure why) {
        failed_handshakes[static_cast<std::size_t>(why)].add();
    }

    // Any thread: the counters of an export go on under another name.
    void rename(const std::string& from, const std::string& to);

    // Any thread.
    struct OfExport {
        std::shared_ptr<const std::string> name;  // several may have the same name
        std::shared_ptr<const ExportCounters> counters;
    };
    std::vector<OfExport> exports() const;
    struct Seen {
        std::shared_ptr<const ConnectionCounters> counters;
        std::shared_ptr<const ConnectionFacts> facts;
    };
    std::vector<Seen> connections() const;

 private:
    mutable Mutex mutex_;
    // Of one name, the first one counts now. The others are of removed exports.
    struct Named {
        std::shared_ptr<const std::string> name;
        std::shared_ptr<ExportCounters> counters;
    };
    std::multimap<std::string, Named, std::less<>> exports_ GUARDED_BY(mutex_);
    std::map<std::uint64_t, std::shared_ptr<ConnectionCounters>> connections_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server
