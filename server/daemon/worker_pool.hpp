// The workers and their threads.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Of each thread that moves data of exports.
storage::ChannelOptions channel_options(const config::PipelineOptions& pipeline);

class WorkerPool final : public Service {
 public:
    explicit WorkerPool(ServerContext& context) : context_(context) {}

    void start() override;  // unless they run
    void drain() override;
    void stop() override;  // joins the threads

    const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
    Worker& least_busy() const;
    std::uint64_t connections() const;
    void log_trace() const;

 private:
    ServerContext& context_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_;
};

}  // namespace gpunbd::server
