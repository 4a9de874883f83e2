#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/connection_slots.hpp"
#include "server/net/transport/tls_context.hpp"
#include "storage/base/counter.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Opens the GPU channels of workers before clients are affected: opening one takes 4 to 30 ms, and
// the driver blocks the other channels of the process for up to 10 ms of that.

// Each worker calls `first` and opens its channels to these devices. Its future then becomes ready,
// with the exception of Device::open_channel() if it throws.
std::vector<std::future<void>> open_channels(
    std::span<const std::unique_ptr<Worker>> workers, const std::vector<storage::Device*>& devices,
    void (*first)() = [] {});

// Of each thread that moves data of exports.
storage::ChannelOptions channel_options(const config::PipelineOptions& pipeline);

// The workers and their threads.
class WorkerPool final : public Service {
 public:
    explicit WorkerPool(ServerContext& context) : context_(context) {}

    // Unless they run. Opens their channels to the devices of the exports that there are.
    void start() override;
    void drain() override;
    void stop() override;  // joins the threads

    const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
    Worker& least_busy() const;
    std::uint64_t connections() const;
    void log_trace() const;

 private:
    void open_channels_ahead() const;

    ServerContext& context_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_;
};

// Counts the accepted and the refused connections.
struct AcceptCounters {
    storage::Counter accepted;
    std::array<storage::Counter, connection_limits.size()> refused;  // by ConnectionLimit
};

// Gives each accepted connection to the least busy worker, if the limits admit it.
class ConnectionDispatcher final : public Service {
 public:
    ConnectionDispatcher(ServerContext& context, const WorkerPool& workers);

    void open() override;
    Commit reload(const config::Options& next, Problems& problems) override;

    void accept(OwnedFd fd, Peer peer);
    // Continues a connection of the predecessor.
    void take_over(Predecessor::Client client);
    const AcceptCounters& counters() const { return counters_; }

 private:
    std::vector<std::string> tls_warnings(const config::Options& options) const;

    ServerContext& context_;
    const WorkerPool& workers_;
    const SessionLimits limits_;
    std::shared_ptr<const TlsContext> tls_;  // of new connections; null: off
    AcceptCounters counters_;
};

}  // namespace gpunbd::server
