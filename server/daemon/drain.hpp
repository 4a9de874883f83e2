// Waits until the connections of a server that drains have ended, and ends the event loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "server/daemon/poll.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "storage/base/long_work.hpp"

namespace gpunbd::server {

class Drain final : public Service {
 public:
    Drain(ServerContext& context, const WorkerPool& workers, const ServerControl& control);

    void drain() override;
    void hand_over() override { drain(); }
    void resume() override { poll_.resume(); }

    // Closes the remaining connections.
    void expire() { deadline_ = std::chrono::steady_clock::now(); }

 private:
    // Returns true if connections remain.
    bool wait();

    ServerContext& context_;
    const WorkerPool& workers_;
    const ServerControl& control_;
    Poll poll_;
    std::chrono::steady_clock::time_point deadline_;
    std::optional<storage::LongWork> work_;
    std::uint64_t total_ = 0;  // connections at the start of draining
};

}  // namespace gpunbd::server
