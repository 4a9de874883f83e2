// What the connections of a worker share: channels, pools, budget, counters and scheduler.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "server/counters/worker_counters.hpp"
#include "server/nbd/admission.hpp"
#include "server/nbd/operation_pools.hpp"
#include "server/nbd/scheduler.hpp"
#include "server/nbd/trace.hpp"
#include "server/net/transport/pool.hpp"
#include "server/net/transport/receive_buffer.hpp"
#include "storage/devices/channels.hpp"

namespace gpunbd::server {

struct WorkerContext {
    static constexpr std::size_t max_free_buffers = 64;

    // `max_memory`: bytes that the requests of all its connections may hold.
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
    const std::unique_ptr<Trace> trace;  // may be null
    storage::Channels channels;
    Scheduler scheduler{io, channels};
    OperationPools operations;
    Pool<ReceiveBuffer> receive_buffers{max_free_buffers};
    Budget budget;
    WorkerCounters counters;

 private:
    // Any thread. It retries until it succeeds, since a request waits for what happens next.
    void wake() noexcept;
};

}  // namespace gpunbd::server
