// For exports with `swap: true`: locks the memory of the server, and delays its end while the
// machine swaps to one of its exports.
#pragma once

#include "server/daemon/poll.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"

namespace gpunbd::server {

class SwapProtection final : public Service {
 public:
    SwapProtection(ServerContext& context, const WorkerPool& workers, ServerControl& control);

    void start() override;
    Commit reload(const config::Options& next, Problems& problems) override;
    void resume() override { poll_.resume(); }

    // Called when the server should end. Returns true if the machine swaps to it: it ends later.
    bool delays_end();

 private:
    bool wait_for_swapoff();
    void extend_stop_timeout() const;

    ServerContext& context_;
    const WorkerPool& workers_;
    ServerControl& control_;
    Poll poll_;
};

}  // namespace gpunbd::server
