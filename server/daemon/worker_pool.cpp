#include "server/daemon/worker_pool.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/base/numa.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/base/usable_cpus.hpp"

namespace gpunbd::server {

namespace {

std::uint32_t worker_count(const config::Options& options) {
    return options.threads != 0 ? options.threads : storage::usable_cpus();
}

}  // namespace

storage::ChannelOptions channel_options(const config::PipelineOptions& pipeline) {
    storage::ChannelOptions channels;
    channels.chunk_size = static_cast<std::uint32_t>(pipeline.chunk_size.value_or(0));
    channels.slots = pipeline.slots;
    channels.pinned = pipeline.pinned;
    return channels;
}

void WorkerPool::start() {
    if (!workers_.empty()) return;
    const config::Options& options = context_.options;
    const std::uint32_t count = worker_count(options);
    const std::uint64_t in_flight = options.limits.in_flight / count;
    const std::vector<int> nodes = context_.devices.numa_nodes();
    const storage::SignalsBlocked blocked;
    for (std::uint32_t i = 0; i != count; ++i) {
        workers_.push_back(
            std::make_unique<Worker>(channel_options(options.pipeline), in_flight, options.trace));
        const int node = nodes.empty() ? -1 : nodes[i % nodes.size()];
        threads_.emplace_back([worker = workers_.back().get(), node] {
            stay_on_node(node);
            worker->run();
        });
        ::pthread_setname_np(threads_.back().native_handle(), fmt::format("worker {}", i).c_str());
    }
}

void WorkerPool::drain() {
    for (const auto& worker : workers_) worker->drain_sessions();
}

void WorkerPool::stop() {
    for (const auto& worker : workers_) worker->stop();
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

Worker& WorkerPool::least_busy() const {
    GPUNBD_ASSERT(!workers_.empty(), "connections are served after the start of the workers");
    return **std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
        return a->connections() < b->connections();
    });
}

std::uint64_t WorkerPool::connections() const {
    std::uint64_t connections = 0;
    for (const auto& worker : workers_) connections += worker->connections();
    return connections;
}

void WorkerPool::log_trace() const {
    std::vector<const Trace*> traces;
    for (const auto& worker : workers_) {
        if (worker->trace() != nullptr) traces.push_back(worker->trace());
    }
    if (!traces.empty()) spdlog::info("trace of all workers\n{}", describe_traces(traces));
}

}  // namespace gpunbd::server
