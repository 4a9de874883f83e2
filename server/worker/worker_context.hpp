// What a worker has for its connections: its lanes, its pools, its budget and its scheduler.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "server/connection/budget.hpp"
#include "server/connection/pool.hpp"
#include "server/connection/receive_buffer.hpp"
#include "server/operations/operation_pools.hpp"
#include "server/worker/scheduler.hpp"
#include "server/worker/trace.hpp"
#include "storage/lanes.hpp"

namespace gpunbd::server {

struct WorkerContext {
    static constexpr std::size_t max_free_buffers = 64;

    // `max_memory`: bytes that the requests of all its connections may hold. `keep_trace`: one is
    // kept.
    WorkerContext(storage::LaneOptions options, std::uint64_t max_memory, bool keep_trace)
        : trace(keep_trace ? std::make_unique<Trace>() : nullptr),
          lanes([&] {
              options.trace = keep_trace ? &trace->lanes : nullptr;
              return options;
          }()),
          budget(max_memory) {}

    boost::asio::io_context io{1};
    const std::unique_ptr<Trace> trace;  // null: none is kept
    storage::Lanes lanes;
    Scheduler scheduler{io, lanes};
    OperationPools operations;
    Pool<ReceiveBuffer> receive_buffers{max_free_buffers};
    Budget budget;
};

}  // namespace gpunbd::server
