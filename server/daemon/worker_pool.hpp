#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

// Opens the GPU channels of all workers before clients are affected: opening one takes 30 ms, and
// the driver blocks the other channels of the process for up to 10 ms of that.

// Each worker calls `first` and opens its channels to these devices. Its future then becomes ready,
// with the exception of Device::open_channel() if it throws.
std::vector<std::future<void>> open_channels(
    const std::vector<std::unique_ptr<Worker>>& workers,
    const std::vector<storage::Device*>& devices, void (*first)() = [] {});

// Of each thread that moves data of exports.
storage::ChannelOptions channel_options(const config::PipelineOptions& pipeline);

// The workers and their threads.
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
