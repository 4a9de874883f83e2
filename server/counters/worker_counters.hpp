// Counters of one worker. Only its thread writes them, without a lock. Readers take a lock, which
// the worker takes only when connections begin and end. No reader may allocate while it holds the
// lock: a worker that waits for it may be the one that provides memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/counters/connection_counters.hpp"
#include "server/counters/counts.hpp"
#include "server/counters/request_counters.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

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
