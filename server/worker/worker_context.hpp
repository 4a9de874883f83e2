// What a worker has for its connections: its channels, its pools, its budget and its scheduler.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "server/connection/budget.hpp"
#include "server/connection/pool.hpp"
#include "server/connection/receive_buffer.hpp"
#include "server/counters/worker_counters.hpp"
#include "server/operations/operation_pools.hpp"
#include "server/worker/scheduler.hpp"
#include "server/worker/trace.hpp"
#include "storage/devices/channels.hpp"

namespace gpunbd::server {

struct WorkerContext {
    static constexpr std::size_t max_free_buffers = 64;

    // `max_memory`: bytes that the requests of all its connections may hold. `keep_trace`: one is
    // kept.
    WorkerContext(storage::ChannelOptions options, std::uint64_t max_memory, bool keep_trace)
        : trace(keep_trace ? std::make_unique<Trace>() : nullptr),
          channels(
              [&] {
                  options.trace = keep_trace ? &trace->channels : nullptr;
                  return options;
              }(),
              [this] { wake(); }),
          budget(max_memory) {}

    boost::asio::io_context io{1};
    const std::unique_ptr<Trace> trace;  // null: none is kept
    storage::Channels channels;
    Scheduler scheduler{io, channels};
    OperationPools operations;
    Pool<ReceiveBuffer> receive_buffers{max_free_buffers};
    Budget budget;
    WorkerCounters counters;

 private:
    // Any thread. It has to succeed, as somebody waits for what comes then.
    void wake() noexcept;
};

}  // namespace gpunbd::server
