#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/daemon/worker_pool.hpp"
#include "server/exports/export_registry.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Finds the swap devices that use exports of this server. The server must not end while there are
// any.

// The kernel does not report the server of a device. A device matches an export with swap if it has
// the export's instance, as passed by its client; without an instance, if it has the same size and
// the export has a client. `root` replaces / in tests.
std::vector<std::string> swapped_to(const ExportRegistry::Exports& exports,
                                    const std::string& root = "");

// Allocates everything that requests need before the first client, because memory may not be
// available later.

// For exports with swap: starts the threads of provisioners. Each worker reserves heap memory,
// opens its channels and runs every path once; its future then becomes ready, with the exception of
// Device::open_channel() if it throws.
std::vector<std::future<void>> warm_up(const std::vector<std::unique_ptr<Worker>>& workers,
                                       const ExportRegistry::Exports& exports);

// For exports with `swap: true`: locks the memory of the server, and delays its end while the
// machine swaps to one of its exports.
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
