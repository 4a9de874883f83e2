#include "server/daemon/worker_pool.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "server/base/line_limit.hpp"
#include "server/exports/access_list.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/control_groups.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/devices/host/system_memory.hpp"

namespace gpunbd::server {

namespace {

// Workers and their pinned memory are on the NUMA node of the device that they serve.

// Of the available memory: the most that workers take for staging before they have clients.
constexpr std::uint64_t share_of_memory = 64;

// Binds the calling thread to the CPUs of the node, and so the memory that it touches first. Does
// nothing if the node is unknown (-1) or the system does not list its CPUs.
void stay_on_node(int node) {
    if (node < 0) return;
    // A list like "0-15,32-47".
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    unsigned first = 0;
    while (file >> first) {
        unsigned last = first;
        if (file.peek() == '-') file.ignore(1) >> last;
        for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &wanted);
        }
        file.ignore(1, ',');
    }
    if (CPU_COUNT(&wanted) != 0 && ::sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
        spdlog::warn("a worker cannot be bound to NUMA node {}", node);
    }
}

std::uint32_t worker_count(const config::Options& options) {
    return options.threads != 0 ? options.threads : storage::usable_cpus();
}

}  // namespace

std::vector<std::future<void>> open_channels(std::span<const std::unique_ptr<Worker>> workers,
                                             const std::vector<storage::Device*>& devices,
                                             void (*first)()) {
    std::vector<std::future<void>> opened;
    for (const auto& worker : workers) {
        const auto task = std::make_shared<std::packaged_task<void(WorkerContext&)>>(
            [devices, first](WorkerContext& its) {
                first();
                for (storage::Device* device : devices) its.channels.open(*device);
            });
        opened.push_back(task->get_future());
        worker->post([task](WorkerContext& its) { (*task)(its); });
    }
    return opened;
}

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
    open_channels_ahead();
}

// Otherwise the first clients would wait for each other's channels: 16 of them for 60 to 160 ms.
void WorkerPool::open_channels_ahead() const {
    const std::uint64_t staging = 2 * context_.options.pipeline.pinned;
    std::vector<storage::Device*> devices;
    std::uint64_t of_worker = 0;  // bytes of memory that is taken at once
    const auto exports = context_.exports.snapshot();
    for (const auto& each : *exports) {
        for (storage::Device* const device : each->volume->devices()) {
            if (std::ranges::find(devices, device) != devices.end()) continue;
            devices.push_back(device);
            if (!device->sends_in_place()) of_worker += staging;
        }
    }
    std::size_t count = workers_.size();
    if (of_worker != 0) {
        const std::uint64_t room = storage::SystemMemory("/").available() / share_of_memory;
        count = static_cast<std::size_t>(std::min<std::uint64_t>(count, room / of_worker));
    }
    try {
        for (auto& opened : open_channels(std::span(workers_).first(count), devices)) opened.get();
    } catch (const std::exception& error) {
        spdlog::warn("the first clients wait, since a worker cannot prepare for them: {}",
                     error.what());
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

ConnectionDispatcher::ConnectionDispatcher(ServerContext& context, const WorkerPool& workers)
    : context_(context),
      workers_(workers),
      limits_{.handshake = context.options.limits.handshake,
              .in_flight = context.options.limits.in_flight_per_connection,
              .linger = context.options.limits.drain,
              .idle = context.options.limits.idle,
              .unreachable = context.options.limits.unreachable} {}

std::vector<std::string> ConnectionDispatcher::tls_warnings(const config::Options& options) const {
    std::vector<std::string> texts;
    if (auto text = unproved_in_tls(options)) texts.push_back(std::move(*text));
    const auto& flags = context_.command.overrides.values;
    const bool by_flag = std::any_of(flags.begin(), flags.end(),
                                     [](const auto& each) { return each.first == "tls.mode"; });
    if (by_flag) return texts;  // --tls off turns off the TLS of a file
    if (const auto text = unused_credentials(options)) texts.push_back("tls: " + *text);
    return texts;
}

void ConnectionDispatcher::open() {
    tls_ = TlsContext::load(context_.options);
    for (const std::string& each : tls_warnings(context_.options)) spdlog::warn("{}", each);
}

Service::Commit ConnectionDispatcher::reload(const config::Options& next, Problems& /*problems*/) {
    std::vector<std::string> added = tls_warnings(next);
    for (const std::string& each : tls_warnings(context_.options)) std::erase(added, each);
    return [this, tls = TlsContext::load(next), added = std::move(added)] {
        tls_ = tls;
        for (const std::string& each : added) spdlog::warn("{}", each);
    };
}

void ConnectionDispatcher::accept(OwnedFd fd, Peer peer) {
    try {
        ConnectionSlots::Answer answer = context_.slots.enter(peer);
        if (!answer.slot) {
            counters_.refused[static_cast<std::size_t>(answer.limit)].add();
            ClientLine(spdlog::level::warn)
                .with("peer", peer.text())
                .log("{}: refused: {}", peer.text(), answer.refusal);
            return;
        }
        counters_.accepted.add();
        GPUNBD_ASSERT(!answer.evicted || answer.evicted->worker != nullptr,
                      "a connection has its worker before the next one is accepted");
        if (answer.evicted) answer.evicted->worker->evict(answer.evicted);
        workers_.least_busy().serve(std::move(fd), std::move(peer), context_.exports, limits_,
                                    std::move(answer.slot), tls_);
    } catch (const std::exception& error) {
        if (client_lines().take()) spdlog::error("a connection is lost: {}", error.what());
    }
}

void ConnectionDispatcher::take_over(Predecessor::Client client) {
    try {
        Peer peer = peer_of(client.socket.get(), client.state->listener);
        ConnectionSlots::Answer answer = context_.slots.enter(peer);
        if (!answer.slot) throw std::runtime_error(answer.refusal);
        answer.slot->served();  // before the next one, because handshakes are limited
        workers_.least_busy().serve(std::move(client.socket), std::move(peer), context_.exports,
                                    limits_, std::move(answer.slot), nullptr,
                                    std::move(client.state));
    } catch (const std::exception& error) {
        spdlog::warn("a connection of the earlier process is closed: {}", error.what());
    }
}

}  // namespace gpunbd::server
